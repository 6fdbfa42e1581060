//! Tokens, and what was done.

use super::{
    Answer, Call, Paging,
    auth::{CONFIGURED, Role, digest},
    problem::{Problem, ProblemDocument},
    reply::{Reply, asked, bare},
    types::{AuditView, MadeToken, NewToken, Page, TokenView},
};
use crate::{
    gateway::registry::{Registry, TokenRow},
    model::WallTime,
};
use base64::Engine as _;
use http::StatusCode;
use zeroize::Zeroizing;

/// Characters of a token's name.
const MAX_NAME: usize = 64;
/// What a token begins with, by which one is found where it should not be.
const PREFIX: &str = "assay_";

/// Whether a token can have this name.
///
/// # Errors
/// Why not.
pub fn is_token_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+');
    if name.is_empty() || name.chars().count() > MAX_NAME || !name.chars().all(plain) {
        return Err(format!("a token's name has 1 to {MAX_NAME} letters, digits, '.', '_', '-', '@' and '+'"));
    }
    if name == CONFIGURED {
        return Err("this is the name of the token in the configuration".to_owned());
    }
    Ok(())
}

/// Makes a token and keeps its digest; `None` if its name is taken.
///
/// # Errors
/// There are no random numbers, or the registry cannot be used.
pub fn make_token(
    registry: &mut dyn Registry,
    name: &str,
    role: Role,
    actor: &str,
) -> Result<Option<Zeroizing<String>>, Problem> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes).map_err(|e| Problem::failed(format!("there are no random numbers: {e}")))?;
    let text = Zeroizing::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(*bytes));
    let token = Zeroizing::new(format!("{PREFIX}{}", *text));
    let now = WallTime::now();
    let row = TokenRow {
        name: name.to_owned(),
        role: role.as_str().to_owned(),
        digest: digest(&token),
        created_at: now.to_string(),
    };
    Ok(registry.add_token(&row, actor, now)?.then_some(token))
}

/// The tokens, without what they are.
#[utoipa::path(
    get, path = "/api/admin/tokens", tag = "tokens", operation_id = "listTokens", params(Paging),
    responses((status = 200, description = "a page of them, by name", body = Page<TokenView>))
)]
pub async fn tokens(call: Call) -> Answer {
    let Call { api, who, uri, .. } = call;
    who.may(Role::Admin)?;
    let asked = asked(&uri)?;
    let rows = api.desk.ask(|office| office.registry().tokens()).await??;
    let mut all: Vec<TokenView> = rows.into_iter().map(Into::into).collect();
    if let Some(after) = &asked.cursor {
        all.retain(|token| token.name > *after);
    }
    Ok(Reply::page(&uri, &asked, all, |token| token.name.clone()).into())
}

/// Makes a token. It is shown this once.
#[utoipa::path(
    post, path = "/api/admin/tokens", tag = "tokens", operation_id = "createToken", request_body = NewToken,
    responses(
        (status = 201, description = "the token", body = MadeToken),
        (status = 409, description = "`exists`", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn create(call: Call) -> Answer {
    let Call { api, who, body, .. } = call;
    who.may(Role::Admin)?;
    let NewToken { name, role } = body.json().await?;
    is_token_name(&name).map_err(|why| Problem::invalid_at("/name", why))?;
    let asked = name.clone();
    let made = api.desk.ask(move |office| {
        let made = make_token(office.registry(), &asked, role, &who.actor());
        office.tokens_changed();
        made
    });
    let Some(token) = made.await?? else {
        return Err(Problem::conflict("exists", "there is a token of this name"));
    };
    let location = format!("/api/admin/tokens/{name}");
    let reply = Reply::json(StatusCode::CREATED, &MadeToken { name, role, token: (*token).clone() });
    Ok(reply.location(&location).into())
}

/// Takes a token away: it is good for nothing from now on.
#[utoipa::path(
    delete, path = "/api/admin/tokens/{name}", tag = "tokens", operation_id = "revokeToken",
    params(("name" = String, Path, description = "its name")),
    responses((status = 204, description = "it is gone"))
)]
pub async fn revoke(call: Call) -> Answer {
    let Call { api, who, uri, parts, .. } = call;
    let [name] = parts.take()?;
    who.may(Role::Admin)?;
    bare(&uri)?;
    let removed = api.desk.ask(move |office| {
        let removed = office.registry().remove_token(&name, &who.actor(), WallTime::now());
        office.tokens_changed();
        removed
    });
    if removed.await?? { Ok(Reply::none().into()) } else { Err(Problem::not_found("no token has this name")) }
}

/// What was done, by whom.
#[utoipa::path(
    get, path = "/api/admin/audit", tag = "audit", operation_id = "listAudit", params(Paging),
    responses((status = 200, description = "a page of lines, the newest first; each has the hash of the one before it in its own",
               body = Page<AuditView>, headers(("Link" = String, description = "the next page, `rel=\"next\"`"))))
)]
pub async fn audit(call: Call) -> Answer {
    let Call { api, uri, .. } = call;
    let asked = asked(&uri)?;
    let (below, most) = (asked.below()?, asked.limit + 1);
    let rows = api.desk.ask(move |office| office.registry().audit(below, most)).await??;
    let rows: Vec<AuditView> = rows.into_iter().map(Into::into).collect();
    Ok(Reply::page(&uri, &asked, rows, |line| line.id.to_string()).into())
}
