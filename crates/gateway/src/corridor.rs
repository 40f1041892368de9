//! The corridor: one call, door to answer.
//!
//! This is all of it, in order. Each room takes what only the room before it can make, and can only make
//! the answer stricter. Held writes go on in [`crate::loops::release`], which reads the same way.

use sluice_core::CallId;
use sluice_core::capability::Effect;

use crate::rooms::identity::Knock;
use crate::rooms::schema::Checked;
use crate::rooms::{
    approval, audit, brake, check, freeze, hold, identity, leak, origin, own_files, policy, read, repeat, schema, spawn,
};
use crate::{Gateway, No};

pub use crate::rooms::answer::Answer;

/// Walks one call through every room.
///
/// # Errors
/// Any no, with the call it belongs to. From the moment the caller is known, the record has it too.
pub async fn walk(gw: &Gateway, knock: Knock) -> Result<Answer, No> {
    gw.takes_calls()?;
    let known = identity::recognise(gw, knock).await?;
    again(gw, known).await
}

/// Walks a call in an agent's name that a person has changed, from the schema on: whose it is was known when the
/// agent asked.
///
/// # Errors
/// As [`walk`].
pub(crate) async fn again(gw: &Gateway, known: identity::Known) -> Result<Answer, No> {
    gw.takes_calls()?;
    let worded = known.trace();
    let known = match spawn::resolve(gw, known) {
        Ok(known) => known, // a spawn is the call it stands for, from here on
        Err(no) => return Err(audit::refused(gw, &worded, no).await),
    };
    let trace = known.trace();
    match inside(gw, known).await {
        Ok(answer) => Ok(answer),
        Err(no) => Err(audit::refused(gw, &trace, no).await),
    }
}

async fn inside(gw: &Gateway, known: identity::Known) -> Result<Answer, No> {
    let call: CallId = known.call();
    let checked = schema::check(gw, known).await?;
    if let Some(write) = brake::pulled(gw, &checked) {
        return brake::pull(gw, &checked, write).await.map_err(|no| no.about(call)); // what only stops never waits
    }
    let named = repeat::named(&checked);
    match onward(gw, checked).await {
        Err(no) => repeat::instead(gw, named, no).await.map_err(|no| no.about(call)), // made before, and answered then
        answered => answered,
    }
}

async fn onward(gw: &Gateway, checked: Checked) -> Result<Answer, No> {
    own_files::protect(gw, &checked)?; // the gateway's own folder is nobody's business
    let sourced = origin::trace(gw, checked).await?; // asked for, known, seen outside or new
    let judged = policy::judge(gw, sourced).await?; // also picks the batch window it will be weighed in
    let cleared = leak::scan(gw, judged)?;
    let asked = approval::ask(gw, cleared).await?; // a standing yes answers, or a person will be asked
    let free = freeze::stop(gw, asked).await?; // while frozen nothing is allowed and nothing leaves
    if free.asked().only_checks() {
        check::answer(gw, free).await
    } else if free.asked().effect() == Effect::Read && !free.asked().needs_person() {
        read::answer(gw, free).await
    } else {
        hold::place(gw, free).await // weighed against the batch window in the same transaction
    }
}
