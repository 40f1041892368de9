//! The dashboard: the pages on which people see what waits, what left and what was stopped, and act on it.
//!
//! Takes requests of browsers that the HTTP door has read within its limits; gives pages, redirects and one stream of
//! changes. Promise: a page decides nothing by itself: it shows approvals as every channel renders them and hands each
//! action to the use case that the HTTP API uses, with the role of the operator's credential behind the session; every
//! action is a form that works without JavaScript and that only a page of this gateway can send.
#![warn(missing_docs)]

mod assets;
mod card_lines;
mod context;
mod cookies;
mod door;
mod fields;
mod guard;
mod kept_form;
mod live;
mod lockout;
mod pages;
mod reply;
mod sentences;
mod sign_in;

pub use door::{Dashboard, is_at};
pub use fields::LONGEST_FORM;
pub use reply::{DashboardBody, DashboardReply, DashboardRequest};
pub use sign_in::{SignInCode, make_sign_in_code};
