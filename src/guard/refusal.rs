//! What the guard refuses by rules of its own.

/// Why a message is refused before any policy looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is no JSON, or no JSON-RPC message.
    Malformed,
    /// A byte order mark stands before it.
    ByteOrderMark,
    /// A carriage return, or one of Unicode's line breaks with something like a message behind it, stands inside.
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
    /// It holds U+0000.
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
    /// A method that is no string, or almost the name of another.
    BadMethod,
    /// `params` that is no object where one is needed.
    BadParams,
    /// A tool name that is missing, no string, or framed by what cannot be seen.
    BadToolName,
    /// `arguments` that is no object.
    BadArguments,
    /// A batch without elements, or with too many.
    BadBatch,
    /// More requests are in flight than are followed.
    TooManyInFlight,
    /// The recorder could not record what would pass.
    RecorderUnavailable,
}

impl Refusal {
    /// The machine word behind `guard:`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::ByteOrderMark => "byte_order_mark",
            Self::LineBreak => "line_break",
            Self::DuplicateKey => "duplicate_key",
            Self::FoldedName => "folded_name",
            Self::EscapedName => "escaped_name",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::LoneSurrogate => "lone_surrogate",
            Self::Nul => "nul",
            Self::TooDeep => "too_deep",
            Self::TooManyMembers => "too_many_members",
            Self::TooLarge => "too_large",
            Self::Shape => "shape",
            Self::AnswersNothing => "answers_nothing",
            Self::BadId => "bad_id",
            Self::BadMethod => "bad_method",
            Self::BadParams => "bad_params",
            Self::BadToolName => "bad_tool_name",
            Self::BadArguments => "bad_arguments",
            Self::BadBatch => "bad_batch",
            Self::TooManyInFlight => "too_many_in_flight",
            Self::RecorderUnavailable => "recorder_unavailable",
        }
    }

    /// What a person is told.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Malformed => "the message is not one JSON-RPC message",
            Self::ByteOrderMark => "a byte order mark stands before the message",
            Self::LineBreak => "a line break inside the message could make two of it",
            Self::DuplicateKey => "a member name occurs twice in one object",
            Self::FoldedName => "two member names differ in case only",
            Self::EscapedName => "a member name of the protocol is written with escapes",
            Self::InvalidUtf8 => "the message is not UTF-8",
            Self::LoneSurrogate => "an escape names half of a surrogate pair",
            Self::Nul => "the message holds U+0000",
            Self::TooDeep => "the message is nested too deeply",
            Self::TooManyMembers => "the message has too many members",
            Self::TooLarge => "the message is too large",
            Self::Shape => "the message is neither a request, a notification nor a response",
            Self::AnswersNothing => "the response answers no request",
            Self::BadId => "the id is neither a string nor a number",
            Self::BadMethod => "the method is no name, or almost that of another",
            Self::BadParams => "the parameters are not an object",
            Self::BadToolName => "the tool name is missing or hides characters",
            Self::BadArguments => "the arguments are not an object that all readers read alike",
            Self::BadBatch => "a batch has from 1 to 256 elements",
            Self::TooManyInFlight => "too many requests wait for their responses",
            Self::RecorderUnavailable => "no tool call passes while it cannot be recorded",
        }
    }
}
