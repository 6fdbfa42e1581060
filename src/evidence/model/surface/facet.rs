//! The parts of a surface.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A part of a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// What the server can do.
    Capabilities,
    /// What the server tells the model about itself.
    Instructions,
    /// `prompts/list`.
    Prompts,
    /// `resources/templates/list`.
    ResourceTemplates,
    /// `resources/list`.
    Resources,
    /// `tools/list`.
    Tools,
}

impl Facet {
    /// The facets that are lists of items.
    pub const LISTS: [Self; 4] = [Self::Prompts, Self::ResourceTemplates, Self::Resources, Self::Tools];

    /// The facet that a method lists, if it lists one.
    #[must_use]
    pub fn listed_by(method: &str) -> Option<Self> {
        Some(match method {
            "prompts/list" => Self::Prompts,
            "resources/templates/list" => Self::ResourceTemplates,
            "resources/list" => Self::Resources,
            "tools/list" => Self::Tools,
            _ => return None,
        })
    }

    /// The facets that a `list_changed` notification makes stale; none for any other method.
    #[must_use]
    pub fn made_stale_by(method: &str) -> &'static [Self] {
        match method {
            "notifications/prompts/list_changed" => &[Self::Prompts],
            "notifications/resources/list_changed" => &[Self::ResourceTemplates, Self::Resources],
            "notifications/tools/list_changed" => &[Self::Tools],
            _ => &[],
        }
    }

    /// As it is spelt on disk and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Instructions => "instructions",
            Self::Prompts => "prompts",
            Self::ResourceTemplates => "resource_templates",
            Self::Resources => "resources",
            Self::Tools => "tools",
        }
    }

    /// Member of a result that holds the list, and member of an item that names it; `None` for what is no list.
    #[must_use]
    pub const fn members(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Capabilities | Self::Instructions => None,
            Self::Prompts => Some(("prompts", "name")),
            Self::ResourceTemplates => Some(("resourceTemplates", "uriTemplate")),
            Self::Resources => Some(("resources", "uri")),
            Self::Tools => Some(("tools", "name")),
        }
    }
}

impl fmt::Display for Facet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
