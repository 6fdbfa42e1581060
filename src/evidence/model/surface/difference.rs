//! What differs between two surfaces, in words that are counted, grouped and signed.

use super::Facet;
use crate::model::words::vocabulary;
use std::fmt;

vocabulary! {
    /// How much a change matters to somebody who decides about it.
    #[derive(PartialOrd, Ord, Hash)]
    Severity {
        /// It changes nothing that a client or model acts on.
        Info = "info",
        /// It changes what is shown, or takes something away.
        Low = "low",
        /// It changes what may be asked or answered.
        Medium = "medium",
        /// It changes what a model reads, or what the server claims about its own safety.
        High = "high",
        /// It may deceive a reader.
        Critical = "critical",
    }
}

vocabulary! {
    /// What kind of change it is.
    #[derive(PartialOrd, Ord, Hash)]
    ChangeKind {
        /// An item can be read in two ways.
        Ambiguous = "ambiguous",
        /// Two items have one name and different definitions.
        DuplicateName = "duplicate_name",
        /// A new name looks like one that is approved.
        LookalikeName = "lookalike_name",
        /// The server shows different definitions to clients that ask in the same way.
        Cloaked = "cloaked",
        /// A text holds characters that are not seen, and did not before.
        HiddenCharacters = "hidden_characters",
        /// An item that was not there.
        Added = "added",
        /// An item went and a similar one came.
        Renamed = "renamed",
        /// A text that a model reads: a description, an enumeration, a default, an example, the instructions.
        TextChanged = "text_changed",
        /// An annotation now claims what is harmless.
        ClaimsSafer = "claims_safer",
        /// A parameter is copied to a header of HTTP (`x-mcp-header`).
        HeaderParam = "header_param",
        /// A schema refers to something outside of itself.
        RemoteRef = "remote_ref",
        /// A member of `_meta`.
        MetaChanged = "meta_changed",
        /// The same server id, at another place.
        EndpointChanged = "endpoint_changed",
        /// A parameter that was not there.
        ParameterAdded = "parameter_added",
        /// A parameter is gone.
        ParameterRemoved = "parameter_removed",
        /// A parameter that could be left out has to be given.
        ParameterRequired = "parameter_required",
        /// A parameter that had to be given can be left out.
        ParameterOptional = "parameter_optional",
        /// A constraint that was not there.
        ConstraintAdded = "constraint_added",
        /// A constraint is gone.
        ConstraintRemoved = "constraint_removed",
        /// A constraint allows more.
        Widened = "widened",
        /// A constraint allows less.
        Narrowed = "narrowed",
        /// Another type.
        Retyped = "retyped",
        /// `additionalProperties` lets through what it did not.
        Opened = "opened",
        /// Another part of a schema.
        SchemaChanged = "schema_changed",
        /// What a tool says it returns.
        OutputSchema = "output_schema",
        /// The arguments of a prompt.
        PromptArguments = "prompt_arguments",
        /// An annotation no longer claims what is harmless.
        ClaimsRiskier = "claims_riskier",
        /// A capability that the server did not have.
        CapabilityAdded = "capability_added",
        /// How a tool is executed.
        Execution = "execution",
        /// Icons from another host.
        IconHost = "icon_host",
        /// Any other member.
        MemberChanged = "member_changed",
        /// An item is gone.
        Removed = "removed",
        /// A capability is gone.
        CapabilityRemoved = "capability_removed",
        /// A title that looks like an identifier.
        Title = "title",
        /// The type of a resource's content.
        MimeType = "mime_type",
        /// Icons from the same host.
        Icons = "icons",
        /// The order of what has none: `required`, `enum`, `type`.
        Reordered = "reordered",
        /// A default that is now written down, or no longer.
        ExplicitDefault = "explicit_default",
        /// What the server calls itself.
        ServerInfo = "server_info",
        /// The version of the protocol.
        ProtocolVersion = "protocol_version",
    }
}

impl ChangeKind {
    /// How much a change of this kind matters.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Ambiguous | Self::DuplicateName | Self::LookalikeName | Self::Cloaked | Self::HiddenCharacters => {
                Severity::Critical
            }
            Self::Added
            | Self::Renamed
            | Self::TextChanged
            | Self::ClaimsSafer
            | Self::HeaderParam
            | Self::RemoteRef
            | Self::MetaChanged
            | Self::EndpointChanged => Severity::High,
            Self::ParameterAdded
            | Self::ParameterRemoved
            | Self::ParameterRequired
            | Self::ParameterOptional
            | Self::ConstraintAdded
            | Self::ConstraintRemoved
            | Self::Widened
            | Self::Narrowed
            | Self::Retyped
            | Self::Opened
            | Self::SchemaChanged
            | Self::OutputSchema
            | Self::PromptArguments
            | Self::ClaimsRiskier
            | Self::CapabilityAdded
            | Self::Execution
            | Self::IconHost
            | Self::MemberChanged => Severity::Medium,
            Self::Removed | Self::CapabilityRemoved | Self::Title | Self::MimeType | Self::Icons => Severity::Low,
            Self::Reordered | Self::ExplicitDefault | Self::ServerInfo | Self::ProtocolVersion => Severity::Info,
        }
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What kind of change it is; it says how severe it is, too.
    pub kind: ChangeKind,
    /// Where; `None` for what is of the server as a whole.
    pub facet: Option<Facet>,
    /// Name of the item; empty where there is none.
    pub name: String,
    /// JSON pointer (RFC 6901) into the item; empty for all of it.
    pub path: String,
    /// JSON text of what was there; `None` for nothing.
    pub before: Option<String>,
    /// JSON text of what is there now; `None` for nothing.
    pub after: Option<String>,
    /// The item is of a context in which nothing was approved yet: a client that can do more, not a server that changed.
    pub new_context: bool,
}

impl Difference {
    /// How much it matters.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

/// What a comparison with what is approved came to. The five are never merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The same root.
    Identical,
    /// It differs only in what is tolerated.
    Equivalent(Vec<Difference>),
    /// It differs.
    Changed(Vec<Difference>),
    /// Not all of the surface is known; why.
    Incomplete(String),
    /// The server did not answer; why.
    Unreachable(String),
}

impl Outcome {
    /// As it is written.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::Equivalent(_) => "equivalent",
            Self::Changed(_) => "changed",
            Self::Incomplete(_) => "incomplete",
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// The changes that were found.
    #[must_use]
    pub fn differences(&self) -> &[Difference] {
        match self {
            Self::Equivalent(all) | Self::Changed(all) => all,
            Self::Identical | Self::Incomplete(_) | Self::Unreachable(_) => &[],
        }
    }
}
