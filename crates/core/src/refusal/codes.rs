//! The table of refusals: one entry per code, grouped by the room that refuses.
//!
//! The texts go to agents. They say what happened and what to do instead; where a person or a rule has
//! decided, they say that it is a decision, so that no model takes it for a fault to work around.

use super::RetryAdvice;
use super::RetryAdvice::{After, AfterChange, AfterPerson, Never, SafeToRepeat};
use crate::clock::Millis;

const fn secs(n: u64) -> RetryAdvice {
    After(Millis::from_secs(n))
}

codes! {
    // The doors: a request that never became a call.
    DoorTooLarge = "door.too_large", 413, AfterChange,
        "the request is larger than this door accepts",
        "send less in one call, or refer to stored items by their ids";
    DoorHeadTooLarge = "door.head_too_large", 431, AfterChange,
        "the address and headers of the request are longer than this door accepts",
        "send fewer or shorter headers; content belongs in the body";
    DoorTooSlow = "door.too_slow", 408, SafeToRepeat,
        "the request did not arrive in time",
        "send it again with the same idempotency key";
    DoorTooMany = "door.too_many", 429, secs(10),
        "too many requests from this agent at once",
        "wait as long as advised and send fewer at a time; more connections do not help";
    DoorOverloaded = "door.overloaded", 503, secs(5),
        "the gateway is overloaded",
        "wait as long as advised and send the same call again";
    DoorOrigin = "door.origin", 403, Never,
        "the request came from a web page or host that is not configured",
        "an operator can add the origin to the configuration; the agent cannot change this";
    DoorMediaType = "door.media_type", 415, AfterChange,
        "the content type of the request is not accepted here",
        "send JSON with content type application/json";
    DoorNotFound = "door.not_found", 404, AfterChange,
        "there is no resource at this address",
        "check the path; GET /v1/capabilities lists what can be called";
    DoorMethod = "door.method", 405, AfterChange,
        "this address does not take this method",
        "use the method that the API description names for it";
    DoorHeaders = "door.headers", 400, AfterChange,
        "a header is missing or contradicts the body",
        "make headers and body say the same";
    DoorParameter = "door.parameter", 422, AfterChange,
        "the request has a parameter that is not supported here",
        "use the parameters that the API description of this address lists";
    DoorVersion = "door.version", 400, AfterChange,
        "this protocol version is not supported",
        "use one of the versions the gateway offers";
    // Identity: the caller.
    IdentityMissing = "identity.missing", 401, AfterChange,
        "the request carries no credential",
        "send the agent key in the Authorization header";
    IdentityUnknown = "identity.unknown", 401, AfterPerson,
        "the credential is unknown",
        "ask the person who runs the gateway for a working agent key; do not try other keys";
    IdentityRevoked = "identity.revoked", 401, AfterPerson,
        "the credential was revoked",
        "stop and tell your user; only an operator can issue a new key";
    IdentityExpired = "identity.expired", 401, AfterPerson,
        "the credential has expired",
        "stop and tell your user; an operator can rotate the key";
    IdentityWrongKind = "identity.wrong_kind", 403, Never,
        "this kind of credential does not work at this address",
        "agent keys, task keys, operator tokens and inbox keys never stand in for each other; use your own";
    IdentityTaskKey = "identity.task_key", 403, AfterPerson,
        "an agent's own key cannot state what the user asked for",
        "open the session without a task, or state the task with a task key for this agent or an operator token";
    IdentityNotAllowed = "identity.not_allowed", 403, AfterPerson,
        "this credential may not do this",
        "an operator can grant the role; the agent cannot change this";
    IdentityPaused = "identity.paused", 403, AfterPerson,
        "this agent is paused by a person",
        "stop and tell your user; do not continue under another name";
    IdentityUnknownAgent = "identity.unknown_agent", 404, AfterChange,
        "there is no agent of this name",
        "check the name; `sluice agents list` shows them";
    IdentityAgentExists = "identity.agent_exists", 409, AfterChange,
        "there already is an agent of this name",
        "choose another name, or issue another key for the one that exists";
    IdentitySession = "identity.session", 404, AfterChange,
        "the session is unknown, has ended or belongs to another agent",
        "open a session with POST /v1/sessions and use the id it returns";
    // JSON: an invalid or ambiguous text.
    JsonTooLarge = "json.too_large", 413, AfterChange, "the JSON text is too long",
        "send less in one call";
    JsonTooDeep = "json.too_deep", 400, AfterChange, "the JSON is nested too deeply",
        "flatten the arguments";
    JsonTooManyItems = "json.too_many_items", 400, AfterChange, "the JSON has too many keys and elements",
        "send less in one call";
    JsonLossyNumber = "json.lossy_number", 400, AfterChange, "a number would lose digits",
        "send it as a string";
    JsonDuplicateKey = "json.duplicate_key", 400, AfterChange, "a key appears twice in one object",
        "send each key once";
    JsonSyntax = "json.syntax", 400, AfterChange, "the text is not valid JSON",
        "correct the JSON at the place that is named";
    // Schema: a call that matches no capability.
    SchemaUnknownCapability = "schema.unknown_capability", 404, AfterChange,
        "there is no capability of this name",
        "use a name that GET /v1/capabilities lists; upper and lower case matter";
    SchemaNotAnObject = "schema.not_an_object", 422, AfterChange,
        "the arguments are not a JSON object",
        "send the arguments as an object with their names as keys";
    SchemaUnknownArgument = "schema.unknown_argument", 422, AfterChange,
        "the capability has no argument of this name",
        "leave the argument out or use the name the capability lists";
    SchemaMissingArgument = "schema.missing_argument", 422, AfterChange,
        "a required argument is missing",
        "add the argument; ask your user if you do not know its value";
    SchemaWrongType = "schema.wrong_type", 422, AfterChange,
        "an argument has the wrong type",
        "send the argument in the shape the capability lists";
    SchemaBadName = "schema.bad_name", 422, AfterChange,
        "an id or name is not in its proper form",
        "use ids exactly as the gateway returned them";
    SchemaUnknownAccount = "schema.unknown_account", 422, AfterChange,
        "there is no connected account of this name",
        "leave the account out to use the default, or name one that is connected";
    // Policy: the rules refuse the call.
    PolicyBlocked = "policy.blocked", 403, Never,
        "a rule blocks this call",
        "this is a decision, not a fault: do not try another way to the same effect; tell your user which rule it was";
    PolicyRateLimit = "policy.rate_limit", 429, secs(1),
        "other calls of this agent used up the limit of a rule at the same moment",
        "send the same call again: it is judged again, and the rule decides what a call beyond its limit needs";
    PolicyInvalid = "policy.invalid", 422, AfterChange,
        "the policy files cannot be used; the present rules stay in force",
        "correct the places that are named and send the files again";
    PolicyUnavailable = "policy.unavailable", 503, AfterPerson,
        "the rules could not be read, so nothing is allowed",
        "stop and tell your user; an operator has to repair the policy files";
    // Checks: too many approval requests for calls that the caller carries out itself.
    CheckFlood = "check.flood", 429, secs(60),
        "too many calls that need a person were checked in a short time",
        "wait for the time that is named and until the open approval requests are answered; do not check the same kind of call again before that";
    // Batch: too many writes in a short time.
    BatchWindow = "batch.window", 403, AfterPerson,
        "too many writes at this service in a short time; a person decides about all of them together",
        "stop sending further writes of this kind and wait for the decision; do not split the work or slow it down to get past the limit";
    // Leak scan: content that must not leave.
    LeakFound = "leak.found", 403, AfterChange,
        "the call holds something that must not leave, such as a secret or private data",
        "leave that content out if the task can be done without it; do not encode, split or reword it to get past the check";
    // Content from outside.
    ContentWithheld = "content.withheld", 403, AfterPerson,
        "the item is withheld because it looks like an attack on agents",
        "go on without the item; your user can look at it and release it";
    ContentAmbiguous = "content.ambiguous", 409, AfterPerson,
        "two readers read the message differently, so its sender or its content is uncertain",
        "do not answer or forward it; your user can look at both readings, and to reach the sender, send a new message to an address that you know";
    ContentUnread = "content.unread", 502, AfterPerson,
        "the outside content could not be read safely, so none of it is returned",
        "go on without it; asking again gives the same answer until the gateway can read it";
    ContentDuplicateKey = "content.duplicate_key", 502, AfterPerson,
        "the service sent JSON with the same key twice in an object, which is ambiguous, so none of it is returned",
        "go on without it; the service has to send each key of an object once";
    // Approval: what people decided, or did not decide.
    ApprovalDenied = "approval.denied", 403, Never,
        "a person denied the call",
        "this is an answer, not a fault: do not ask again or reach the same effect another way; ask your user how to go on";
    ApprovalExpired = "approval.expired", 403, AfterPerson,
        "nobody answered in time, which counts as a denial",
        "nothing was done and nothing is broken: do not work around it; tell your user, who can request it again";
    ApprovalAlreadyDecided = "approval.already_decided", 409, Never,
        "the approval request is already decided, and the decision stands",
        "read the decision; a second one changes nothing";
    ApprovalUnclearReply = "approval.unclear_reply", 422, AfterChange,
        "the reply is not one of the six answers, so nothing was decided",
        "reply with one of the six lines of the menu; 4 and 5 need a text, the others stand alone";
    ApprovalTooLate = "approval.too_late", 410, Never,
        "the approval request expired before this answer arrived, so nothing was decided",
        "an expired request counts as denied; if the write is still wanted, make a new request";
    ApprovalNotPending = "approval.not_pending", 409, Never,
        "the approval request is already decided",
        "read the approval request: it says who decided and when; a decision cannot be changed";
    ApprovalWithdrawn = "approval.withdrawn", 409, Never,
        "the approval request was withdrawn because its write was cancelled or ended",
        "if the write is still wanted, make the call again as a new one";
    ApprovalLapsed = "approval.lapsed", 409, AfterPerson,
        "the approval was not used in time and no longer counts",
        "wait for a new decision; the earlier approval does not carry over";
    ApprovalNotFound = "approval.not_found", 404, AfterChange,
        "there is no such approval request for this credential",
        "use the approval id exactly as it was returned";
    ApprovalNotAnApprover = "approval.not_an_approver", 403, Never,
        "this answer does not come from a person who may decide",
        "only people named in the configuration decide, each over their own channel; agents never do";
    ApprovalReplyToken = "approval.reply_token", 403, AfterChange,
        "the reply does not prove that it comes from a person who was asked, so nothing was decided",
        "reply to the message itself, and keep its subject or quote its text: they contain the token of the request";
    ApprovalNotOffered = "approval.not_offered", 409, AfterChange,
        "the approval request does not offer this answer",
        "read the approval request again and use one of the answers it offers";
    ApprovalGrown = "approval.grown", 409, AfterChange,
        "more writes have joined the approval request since it was shown",
        "read the approval request again before you answer it";
    ApprovalNotPossible = "approval.not_possible", 409, Never,
        "the state of the approval request does not allow this",
        "read its state; a decision cannot be changed";
    ApprovalTarget = "approval.target", 403, AfterChange,
        "the operator does not allow approval requests to this chat or address",
        "leave the target out to ask the configured people";
    ApprovalTooMany = "approval.too_many", 429, AfterPerson,
        "too many approval requests are waiting for people",
        "wait until the open ones are answered; do not send more requests";
    // Hold: a write that waits.
    HoldTooLate = "hold.too_late", 409, Never,
        "the write has started or has ended, so this is no longer possible",
        "read its state; if it can be undone, ask for the rollback";
    HoldNotYet = "hold.not_yet", 409, secs(30),
        "it is too early for this step of the write",
        "wait until the time that is named; the write continues by itself";
    HoldQueueFull = "hold.queue_full", 429, secs(60),
        "the queue of this agent's writes for this service is full",
        "wait as long as advised, then send the same call with the same idempotency key; more calls do not help";
    HoldNotFound = "hold.not_found", 404, AfterChange,
        "there is no such held write for this credential",
        "use the buffer id exactly as it was returned";
    HoldCancelled = "hold.cancelled", 409, Never,
        "the write was cancelled before it left; nothing was sent",
        "a person or agent stopped it on purpose: do not send it again unless your user asks for it";
    HoldStale = "hold.stale", 409, AfterPerson,
        "the write came due too long ago to be sent without a new decision",
        "wait: a person decides whether it is still wanted; do not send it again";
    HoldDead = "hold.dead", 409, AfterPerson,
        "the write used up its attempts without success",
        "tell your user; a person can retry or discard it";
    HoldDiscarded = "hold.discarded", 410, Never,
        "a person discarded the write",
        "this is an answer, not a fault: do not send it again unless your user asks for it";
    // Call: a repeated call.
    CallPossibleDuplicate = "call.possible_duplicate", 409, AfterChange,
        "the same call was made a short while ago",
        "read the first call, which is named here; if a second one is truly meant, set allow_duplicate";
    CallKeyReuse = "call.key_reuse", 409, AfterChange,
        "the idempotency key belongs to a different call",
        "use a new key for a new call, and the old key only to repeat the old call unchanged";
    CallNotFound = "call.not_found", 404, AfterChange,
        "there is no such call for this credential",
        "use the call id exactly as it was returned";
    // Freeze: a person has frozen calls.
    FreezeActive = "freeze.active", 423, AfterPerson,
        "a person has frozen this agent, this service or everything",
        "stop and wait until people lift it: do not look for another way; reads may still work";
    // Execute: at the service.
    ExecuteInDoubt = "execute.in_doubt", 409, Never,
        "the write was sent and its outcome is not known yet",
        "it may have happened: never send it again; read the call later, the gateway is looking it up";
    ExecuteNeedsHuman = "execute.needs_human", 409, AfterPerson,
        "the outcome of the write could not be determined; a person decides",
        "it may have happened: never send it again; tell your user";
    ExecuteRefused = "execute.refused", 422, AfterChange,
        "the service refused the write; nothing was changed",
        "tell your user, who sees the service's own words with `sluice dead show`; a corrected call may pass";
    ExecuteBadArgument = "execute.bad_argument", 422, AfterChange,
        "an argument names something the service does not have, or cannot be used there; nothing was changed",
        "correct the argument the text names, or ask your user";
    ExecuteUnavailable = "execute.unavailable", 503, secs(60),
        "the service is not available or failed to answer",
        "a held write is tried again by itself; repeat a read after the advised time";
    ExecuteRefusedMismatch = "execute.refused_mismatch", 409, AfterPerson,
        "the write to be sent is not the one that was approved; nothing was sent",
        "stop and tell your user; people have been alerted";
    ExecuteFenced = "execute.fenced", 409, Never,
        "another gateway has taken over this write",
        "nothing to do: read the call later for its result";
    ExecuteSecondHandle = "execute.second_handle", 409, AfterPerson,
        "the write already has a handle at the service and must not get a second one",
        "stop and tell your user; a second handle could act twice";
    ExecuteOutOfTime = "execute.out_of_time", 503, secs(60),
        "preparing the write took longer than its claim lasts; nothing was sent",
        "nothing to do: the gateway tries again by itself";
    ExecuteReconnect = "execute.reconnect", 503, AfterPerson,
        "the service no longer accepts the gateway's credential",
        "tell your user that the account has to be connected again";
    // Egress: the way out of a worker.
    EgressNotAllowed = "egress.not_allowed", 403, Never,
        "this host, method or path is not on the allow-list",
        "this is a rule, not a fault: do not try another address for the same thing; an operator can add it";
    EgressLimit = "egress.limit", 429, secs(60),
        "the request limit for this service is used up for now",
        "wait as long as advised; the limit is kept for the service, not for the call";
    EgressBreaker = "egress.breaker", 503, secs(30),
        "the service asked to slow down, so requests to it are paused",
        "wait as long as advised and send the same call again";
    EgressBurned = "egress.burned", 429, AfterPerson,
        "the connection has used up all its requests",
        "stop and tell your user; a person has to reset it first";
    EgressUrl = "egress.url", 422, AfterChange,
        "the address is ambiguous: it can be read in more than one way",
        "write a plain https address: a host name in lower case, no user name, no odd spelling of numbers";
    EgressHeader = "egress.header", 422, AfterChange,
        "a header may not be set by the caller",
        "leave the header out; the gateway sets what is needed";
    EgressAddress = "egress.address", 403, Never,
        "the host resolves to an address in a private network",
        "this is a rule, not a fault: do not try another name for the same address; an operator can open it";
    EgressTicket = "egress.ticket", 403, Never,
        "the ticket is not valid for this request",
        "request only what the job was started for";
    EgressDns = "egress.dns", 502, secs(30),
        "the name of the host could not be resolved",
        "check the spelling of the host; otherwise try again later";
    EgressConnect = "egress.connect", 502, secs(30),
        "the host could not be reached",
        "nothing was sent; try again later";
    EgressTls = "egress.tls", 502, AfterPerson,
        "no trusted connection to the host could be established",
        "nothing was sent; tell your user that the certificate of the host is not trusted";
    EgressNoAnswer = "egress.no_answer", 504, AfterChange,
        "the request was sent and no answer came back",
        "it may have been carried out: check that before you send it again";
    EgressBroken = "egress.broken", 502, AfterChange,
        "the answer is not valid",
        "it may have been carried out: check that before you send it again";
    EgressReply = "egress.reply", 502, AfterChange,
        "the answer began and was cut off",
        "ask for less at a time; if it was a write, check that before you send it again";
    // Vault: credentials the gateway uses on behalf of agents.
    VaultUnknown = "vault.unknown", 404, AfterChange,
        "there is no secret of this name, or it was removed",
        "`secrets.list` names the secrets there are; an operator can set one";
    VaultScope = "vault.scope", 403, Never,
        "the secret is not for this capability and host",
        "this is a rule, not a fault: use the secret that was made for this service; an operator can change its scope";
    VaultLocked = "vault.locked", 503, AfterPerson,
        "the vault cannot be opened",
        "stop and tell your user; an operator has to check the root key";
    // Worker: the process that did the work.
    WorkerCrashed = "worker.crashed", 502, AfterPerson,
        "the worker that handled this ended unexpectedly",
        "read the call later; the gateway starts the task again if that is safe";
    WorkerQuarantined = "worker.quarantined", 423, AfterPerson,
        "the service is quarantined after an attack until a person has checked it",
        "stop and tell your user; do not look for another way to the service";
    // Proxy: an isolated interface to an untrusted service.
    ProxyBudget = "proxy.budget", 429, secs(3600),
        "the budget of this proxy is used up for today, so nothing was sent",
        "wait until the next UTC day begins; another operation of the same proxy has the same budget";
    ProxyOutput = "proxy.output", 422, AfterChange,
        "the answer does not follow the `output_schema` of the call",
        "leave `output_schema` out, or describe what the operation declares as its answer";
    // Mount: a third-party server behind the gate.
    MountDown = "mount.down", 503, secs(30),
        "the server that carries this out cannot be reached at the moment",
        "go on with other work and try again later; the gateway starts the server again by itself";
    MountSignIn = "mount.sign_in", 403, AfterPerson,
        "the server that carries this out wants a person to sign in or to grant more access; nothing was done",
        "tell your user: `sluice mounts connect NAME` signs in; other work can go on";
    MountFailed = "mount.failed", 502, AfterChange,
        "the server that carries this out did not do it or gave no usable answer",
        "read the reason; correct the arguments if it names them, otherwise tell your user";
    MountChanged = "mount.changed", 409, AfterChange,
        "the definition of the tool has changed since the call was made, so nothing was sent",
        "read the present definition of the tool; if the call is still right, make it again";
    MountInvalid = "mount.invalid", 422, AfterChange,
        "the mounts of the configuration cannot be used; the present mounts stay in force",
        "read the places that are named, correct them in sluice.yaml and try again";
    // Rollback: undoing a write.
    RollbackConflict = "rollback.conflict", 409, AfterPerson,
        "the object has changed since the write; undoing it would overwrite newer work",
        "show your user the difference; a person decides what should stand";
    RollbackExpired = "rollback.expired", 410, Never,
        "the time in which the write could be undone is over",
        "tell your user; a new write may correct it";
    RollbackIrreversible = "rollback.irreversible", 409, Never,
        "writes of this kind cannot be undone",
        "tell your user; a new write may correct it";
    RollbackNotFound = "rollback.not_found", 404, AfterChange,
        "there is no such rollback point for this credential",
        "use the id exactly as it was returned";
    RollbackUndone = "rollback.already_undone", 409, Never,
        "the write was already undone",
        "nothing is left to do; look at the write to see by whom and when";
    RollbackNotPossible = "rollback.not_possible", 409, Never,
        "the state of the rollback point does not allow this",
        "read its state; a write is undone only once";
    // Files below the roots an operator opened.
    FilesOutOfScope = "filesystem.out_of_scope", 403, AfterChange,
        "the path is outside the folders opened to this agent",
        "use a path below a folder that agent.whoami lists; do not try other spellings of the same place";
    FilesNotFound = "filesystem.not_found", 404, AfterChange, "there is no such file or folder",
        "list the folder it should be in";
    FilesExists = "filesystem.exists", 409, AfterChange, "there is already something at the destination",
        "choose another name, or say overwrite if your user wants it replaced";
    FilesNotAFile = "filesystem.not_a_file", 409, AfterChange, "this is not a regular file",
        "folders are listed, not read; devices, sockets and pipes are never touched";
    FilesNotAFolder = "filesystem.not_a_folder", 409, AfterChange, "this is not a folder",
        "name the folder, or use the capability for files";
    FilesNotEmpty = "filesystem.not_empty", 409, AfterChange, "the folder is not empty",
        "only files and empty folders are deleted; delete what is in it first if your user wants that";
    FilesSymlink = "filesystem.symlink", 403, AfterChange,
        "the path leads through a symbolic link, which is never followed",
        "use the path the link points to, if it is open to this agent";
    FilesHardLink = "filesystem.hard_link", 403, AfterPerson,
        "the file has more than one name and could be reached from outside",
        "tell your user; an operator can allow files with several names";
    FilesTooLarge = "filesystem.too_large", 413, AfterChange, "the file is larger than this capability takes",
        "read it in parts with offset and limit";
    FilesEncoding = "filesystem.encoding", 422, AfterChange, "the content is not in the encoding named",
        "use encoding binary and base64 for what is not UTF-8 text";
    FilesPattern = "filesystem.pattern", 422, AfterChange, "the pattern cannot be used",
        "correct the pattern; look-around and back-references are not supported";
    FilesCount = "filesystem.count", 409, AfterChange,
        "the number of matches is not the expected one; nothing was changed",
        "look at the file again and correct expected_replacements or the pattern";
    FilesChanged = "filesystem.changed", 409, AfterChange,
        "the file changed during the operation; nothing was written",
        "read it again and decide again";
    FilesNotAsApproved = "filesystem.not_as_approved", 409, AfterPerson,
        "the files are not in the state a person approved; nothing was written",
        "wait: a person is asked again about the state as it is now";
    FilesTooManyWatches = "filesystem.too_many_watches", 429, AfterChange,
        "this agent has reached its limit of watches",
        "watch fewer places, or one further up";
    FilesNoWatch = "filesystem.no_watch", 404, AfterChange,
        "this agent has no such watch, or the gateway was restarted since",
        "start a new watch and use the id it returns";
    FilesDenied = "filesystem.denied", 403, AfterPerson, "the operating system does not let the gateway do this",
        "tell your user; an operator can change the permissions of the folder";
    FilesDiskFull = "filesystem.disk_full", 507, AfterPerson,
        "there is no room left on the disk of this folder; nothing was written",
        "stop and tell your user";
    FilesFailed = "filesystem.failed", 502, AfterPerson, "the operating system reported a failure",
        "tell your user and name the call id";
    // Repositories below the opened folders.
    GitNotInstalled = "git.not_installed", 501, AfterPerson, "git is not installed on the gateway's machine",
        "tell your user; an operator can install git, or name it as `git.program`";
    GitNotARepository = "git.not_a_repository", 404, AfterChange, "this folder has no `.git` folder of its own",
        "name the folder that holds `.git`; linked working trees and submodules are not worked on";
    GitUnsupportedRepository = "git.unsupported_repository", 422, AfterPerson,
        "the repository uses an unsupported extension", "tell your user; the text names the extension";
    GitUnknownRevision = "git.unknown_revision", 404, AfterChange, "there is no such branch or commit",
        "list the branches with git.branch, or the commits with git.log";
    GitExists = "git.exists", 409, AfterChange, "there is already a branch or repository of this name",
        "choose another name";
    GitNothingToCommit = "git.nothing_to_commit", 409, AfterChange, "there are no changes to commit",
        "look at git.status; files that a rule hides from this agent are skipped";
    GitNoAuthor = "git.no_author", 422, AfterChange, "the repository does not name its author",
        "send author_name and author_email, or ask your user to set user.name and user.email in the repository";
    GitConflict = "git.conflict", 409, AfterChange,
        "the branches have diverged, or files that are not committed are in the way; nothing was changed",
        "commit the changes first; branches that diverged are merged by a person";
    GitHiddenPath = "git.hidden_path", 403, Never, "this touches a path that a rule hides from this agent",
        "this is a decision, not a fault: do not try another way to the same file; tell your user";
    GitTooMuch = "git.too_much", 413, AfterChange, "the output of git is too large for one call",
        "ask for less: fewer commits, one commit instead of many, or a smaller depth";
    GitTooSlow = "git.too_slow", 504, SafeToRepeat, "git took longer than the time limit",
        "ask for less, or tell your user; an operator can raise `git.time`";
    GitRemoteNotAllowed = "git.remote_not_allowed", 403, AfterPerson, "this remote address is not open to git",
        "tell your user; an operator names a connection for it under `git.connections`";
    GitRemoteRefused = "git.remote_refused", 502, AfterPerson, "the remote could not be reached, or refused",
        "check that it exists and that the branch can be updated without force; tell your user";
    GitFailed = "git.failed", 502, AfterPerson, "git reported a failure",
        "tell your user and name the call id";

    // Programs run for agents, and those that operators declared.
    ProcessNotAllowed = "process.not_allowed", 403, AfterPerson, "this program is not among those that may be run",
        "tell your user; an operator lists programs under `process.programs`";
    ProcessNotFound = "process.not_found", 404, AfterChange,
        "this agent has no such process, or the gateway was restarted since",
        "list the processes with process.list; they end with the gateway";
    ProcessTooMany = "process.too_many", 429, secs(30), "too many programs are running",
        "wait until one has ended, or end one with process.kill";
    ProcessFailed = "process.failed", 502, AfterPerson, "the program could not be started",
        "check its name and arguments; tell your user and name the call id";
    CustomProgramFailed = "custom.program_failed", 502, AfterPerson, "the program ended without a usable answer",
        "tell your user and name the call id; its error output is shown to people only";
    CustomTooSlow = "custom.too_slow", 504, SafeToRepeat, "the program exceeded its time limit and was ended",
        "ask for less, or tell your user; an operator can raise `program.limits.timeout_seconds`";

    // State that agents keep.
    StateConflict = "state.conflict", 409, AfterChange, "the value was changed by someone else since that version",
        "read it again and decide again with its current version";
    StateQuota = "state.quota", 413, AfterChange, "the value would exceed the space for this kind of state",
        "delete what is no longer needed, or keep less";
    StateKey = "state.key", 422, AfterChange, "this is not a usable key",
        "keys have 1 to 512 characters without control characters";
    StateNoSession = "state.no_session", 409, AfterChange, "session state needs a session, but the call names none",
        "open a session with POST /v1/sessions and send its id along";
    StateVersion = "state.version", 404, AfterChange, "that version is no longer kept",
        "the history of the key lists the versions that are kept";

    // Services: what people connected.
    ServiceUnknown = "service.unknown", 404, AfterChange, "no service of this name is configured here",
        "check the name; `sluice services list` shows them";
    ServiceStopped = "service.stopped", 423, AfterPerson,
        "the connection behind this service is paused or needs a new sign-in",
        "wait until a person resumes it (sluice services resume, sluice connect); reads still work";
    ServiceStarting = "service.starting", 503, secs(5), "the service that carries this out is being started",
        "wait as long as advised and send the same call again; other services can be used meanwhile";
    ServiceSettings = "service.settings", 409, AfterPerson, "the settings of this service cannot be used",
        "tell your user; an operator has to correct the configuration";
    OauthState = "oauth.state", 409, AfterChange,
        "the sign-in link is unknown, expired or already used",
        "begin again: `sluice connect`";
    OauthRefused = "oauth.refused", 403, AfterPerson, "the provider does not grant access",
        "tell your user; a person has to connect again and grant all the access that is requested";
    OauthIssuer = "oauth.issuer", 409, AfterPerson,
        "the server names another authorization server than the one that was asked or accepted",
        "tell your user; a person has to check the address and connect again with `--issuer`";
    OauthMetadata = "oauth.metadata", 502, AfterPerson,
        "what the server published about its sign-in cannot be used",
        "tell your user; the operator of that server has to correct its metadata";
    OauthClient = "oauth.client", 409, AfterPerson,
        "the authorization server accepts no client of this gateway",
        "tell your user; a person has to register the gateway there and connect with `--client-id`";
    OauthUnclear = "oauth.unclear", 502, secs(30), "the provider sent an invalid answer",
        "wait as long as advised and try again";

    // Store: nothing is acknowledged before it is durable.
    StoreUnavailable = "store.unavailable", 503, secs(5), "the database does not answer; nothing was done",
        "wait as long as advised and send the same call with the same idempotency key";
    StoreDiskFull = "store.disk_full", 507, AfterPerson,
        "there is no space left to record new writes, so none are accepted",
        "stop and tell your user; cancelling and reading states still work";
    StoreNotFound = "store.not_found", 404, AfterChange, "there is no object with this id for this credential",
        "use ids exactly as the gateway returned them";
    StoreConflict = "store.conflict", 409, SafeToRepeat, "it has changed since it was read; nothing was changed",
        "read it again and decide again";
    StoreInUse = "store.in_use", 503, AfterPerson, "the database is in use by another process",
        "tell your user; an operator has to stop the other one first";
    StoreForeignFile = "store.foreign_file", 503, AfterPerson, "the database file belongs to another program",
        "tell your user; an operator has to correct the path";
    StoreOldSqlite = "store.old_sqlite", 503, AfterPerson, "the SQLite library is too old to be safe",
        "tell your user; an operator has to install a current release";
    StoreNodeTaken = "store.node_taken", 503, AfterPerson, "another gateway runs under this one's name",
        "tell your user; an operator has to give each gateway its own name";
    StoreEngine = "store.engine", 500, AfterPerson, "the database refused a statement; nothing was changed",
        "tell your user and name the call id";
    StoreDamaged = "store.damaged", 503, AfterPerson, "the database is damaged, so nothing new is started",
        "stop and tell your user; an operator has to restore it";
    StoreWrongKey = "store.wrong_key", 503, AfterPerson,
        "the local replica is encrypted with a key that no longer exists",
        "tell your user; an operator can rebuild it: `sluice services sync NAME --afresh`";
    StoreNewerSchema = "store.newer_schema", 503, AfterPerson,
        "the database belongs to a newer version of the gateway",
        "tell your user; an operator has to start the newer version";
    StoreReadOnly = "store.read_only", 503, AfterPerson, "the database is read-only at present",
        "stop sending writes and tell your user; reading still works";
    StoreUnknownOutcome = "store.unknown_outcome", 503, SafeToRepeat, "it is not known whether the call was recorded",
        "send the same call with the same idempotency key; without a key, read your calls first";
    StoreDurabilityOff = "store.durability_off", 503, AfterPerson,
        "the database settings could lose acknowledged writes, so no write is accepted",
        "tell your user; an operator has to correct the database settings";
    StoreDamagedAction = "store.damaged_action", 500, AfterPerson,
        "the stored call differs from its audit entry, so it is not carried out",
        "stop and tell your user; people have been alerted";

    // Recovery: the database is compared with the state file outside it.
    RecoveryRequired = "recovery.required", 409, AfterPerson,
        "the database was restored from a backup or changed by a person, so everything is frozen",
        "stop and tell your user; an admin has to decide which it was: `sluice recover`";
    RecoveryDamaged = "recovery.record_damaged", 409, AfterPerson,
        "entries of the audit log are missing or damaged, so this database cannot be accepted",
        "tell your user; an operator has to restore an intact backup";
    RecoveryNotNeeded = "recovery.not_needed", 409, Never,
        "the database is the one this gateway wrote to last; there is nothing to decide",
        "go on as usual";
    RecoveryStateFile = "recovery.state_file", 503, secs(60),
        "the state file outside the database cannot be written, so nothing is sent",
        "wait as long as advised; held writes keep their place";

    // Audit: no effect without a record.
    AuditUnavailable = "audit.unavailable", 503, secs(30), "the call cannot be recorded, so it is not carried out",
        "wait as long as advised and send the same call with the same idempotency key";

    // Gateway: the gateway itself.
    GatewayUnavailable = "gateway.unavailable", 503, secs(10),
        "the gateway cannot answer at present; nothing was done",
        "wait as long as advised and send the same call with the same idempotency key; do not go around the gateway";
    GatewayStarting = "gateway.starting", 503, secs(5),
        "the gateway is starting and first finishes what an earlier run left open",
        "wait as long as advised and send the same call again";
    GatewayStopping = "gateway.stopping", 503, secs(15), "the gateway is stopping and accepts nothing new",
        "wait as long as advised and send the same call with the same idempotency key";
    GatewayClock = "gateway.clock", 503, secs(60), "the clock has jumped, so nothing is sent until it is steady",
        "wait as long as advised; held writes keep their place";
    GatewaySandbox = "gateway.sandbox", 503, AfterPerson,
        "this machine cannot sandbox workers as required, so no worker is started",
        "tell your user; an operator decides how the gateway may run";
    GatewayInternal = "gateway.internal", 500, AfterPerson, "something went wrong inside the gateway",
        "tell your user and name the call id; repeat it only with the same idempotency key";
    GatewayUnsupported = "gateway.unsupported", 501, Never, "this gateway does not support that",
        "go on without it; GET /v1/capabilities lists what can be called";
}
