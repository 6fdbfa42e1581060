//! What the guard refuses by rules of its own.

use crate::{
    model::{PolicyVerdict, words::PolicyReason},
    record::judge::Decision,
};

/// Why a message is refused before any policy looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is not JSON, or not a JSON-RPC message.
    Malformed,
    /// A byte order mark is before it.
    ByteOrderMark,
    /// A carriage return, or one of Unicode's line breaks with something like a message after it, is inside.
    LineBreak,
    /// Two members of one object have one name.
    DuplicateKey,
    /// Two argument names, or a name of the protocol and a member's, differ in case only.
    FoldedName,
    /// A name of the protocol is written with escapes.
    EscapedName,
    /// It holds bytes that are not UTF-8.
    InvalidUtf8,
    /// An escape names half of a surrogate pair.
    LoneSurrogate,
    /// It holds U+0000, written or escaped.
    Nul,
    /// It is nested too deeply.
    TooDeep,
    /// It has more members than can be compared.
    TooManyMembers,
    /// It is longer than `--max-message`.
    TooLarge,
    /// It is both a request and a response, or neither.
    Shape,
    /// A response that no request waits for.
    AnswersNothing,
    /// An id that is neither a string, a number nor null.
    BadId,
    /// A method that is not a string, or almost the name of another.
    BadMethod,
    /// `params` that is not an object where one is needed.
    BadParams,
    /// A tool name that is missing, not a string, or has blanks around it or invisible characters in it.
    BadToolName,
    /// `arguments` that is not an object.
    BadArguments,
    /// A batch without elements, or with too many.
    BadBatch,
    /// More requests are in flight than are followed.
    TooManyInFlight,
    /// A header of the protocol contradicts the body, occurs twice, or would be taken off on the way.
    HeaderMismatch,
    /// The body is in a content coding.
    Encoded,
    /// The recorder could not record what would pass.
    RecorderUnavailable,
}

impl Refusal {
    /// As evidence has it.
    #[must_use]
    pub const fn reason(self) -> PolicyReason {
        match self {
            Self::Malformed => PolicyReason::GuardMalformed,
            Self::ByteOrderMark => PolicyReason::GuardByteOrderMark,
            Self::LineBreak => PolicyReason::GuardLineBreak,
            Self::DuplicateKey => PolicyReason::GuardDuplicateKey,
            Self::FoldedName => PolicyReason::GuardFoldedName,
            Self::EscapedName => PolicyReason::GuardEscapedName,
            Self::InvalidUtf8 => PolicyReason::GuardInvalidUtf8,
            Self::LoneSurrogate => PolicyReason::GuardLoneSurrogate,
            Self::Nul => PolicyReason::GuardNul,
            Self::TooDeep => PolicyReason::GuardTooDeep,
            Self::TooManyMembers => PolicyReason::GuardTooManyMembers,
            Self::TooLarge => PolicyReason::GuardTooLarge,
            Self::Shape => PolicyReason::GuardShape,
            Self::AnswersNothing => PolicyReason::GuardAnswersNothing,
            Self::BadId => PolicyReason::GuardBadId,
            Self::BadMethod => PolicyReason::GuardBadMethod,
            Self::BadParams => PolicyReason::GuardBadParams,
            Self::BadToolName => PolicyReason::GuardBadToolName,
            Self::BadArguments => PolicyReason::GuardBadArguments,
            Self::BadBatch => PolicyReason::GuardBadBatch,
            Self::TooManyInFlight => PolicyReason::GuardTooManyInFlight,
            Self::HeaderMismatch => PolicyReason::GuardHeaderMismatch,
            Self::Encoded => PolicyReason::GuardEncoded,
            Self::RecorderUnavailable => PolicyReason::GuardRecorderUnavailable,
        }
    }

    /// The code after `guard:` in the reason.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let word = self.reason().as_str();
        word.strip_prefix("guard:").unwrap_or(word)
    }

    /// The reason, as text for people.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Malformed => "the message is not one JSON-RPC message",
            Self::ByteOrderMark => "the message begins with a byte order mark",
            Self::LineBreak => "a line break inside the message could split it in two",
            Self::DuplicateKey => "a member name occurs twice in one object",
            Self::FoldedName => "two member names differ only in case",
            Self::EscapedName => "a member name of the protocol is written with escapes",
            Self::InvalidUtf8 => "the message is not UTF-8",
            Self::LoneSurrogate => "an escape names half of a surrogate pair",
            Self::Nul => "the message contains U+0000",
            Self::TooDeep => "the message is nested too deeply",
            Self::TooManyMembers => "the message has too many members",
            Self::TooLarge => "the message is too large",
            Self::Shape => "the message is neither a request, a notification nor a response",
            Self::AnswersNothing => "the response answers no request",
            Self::BadId => "the id is neither a string nor a number",
            Self::BadMethod => "the method is not a string, or resembles a reviewed method",
            Self::BadParams => "the parameters are not an object",
            Self::BadToolName => "the tool name is missing or hides characters",
            Self::BadArguments => "the arguments are not an object that all parsers read alike",
            Self::BadBatch => "a batch must have 1 to 256 elements",
            Self::TooManyInFlight => "too many requests are waiting for their responses",
            Self::HeaderMismatch => "a header of the protocol does not fit the body, or is ambiguous",
            Self::Encoded => "the body is in a content coding, so it cannot be judged",
            Self::RecorderUnavailable => "no tool call is forwarded while it cannot be recorded",
        }
    }
}

/// The decision that something does not pass.
pub(super) fn denied(reason: PolicyReason, rule: &str, index: Option<usize>) -> Decision {
    let (reason, rule) = (reason.into(), Some(rule.to_owned()));
    Decision { index, verdict: PolicyVerdict::Denied, reason, rule, unseen: Vec::new() }
}

/// A refusal as the record has it, and its words.
pub(super) fn refused(refusal: Refusal, index: Option<usize>) -> (Decision, String) {
    let rule = format!("guard.{}", refusal.as_str());
    (denied(refusal.reason(), &rule, index), refusal.message().to_owned())
}
