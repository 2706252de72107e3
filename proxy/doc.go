// Package proxy decides for each request whether it is answered from memory, and then writes the answer or forwards the
// request. Read [Handler.Chain] first: it names every filter on the request's way. decide.go has the stages of the
// decision, forwardnow.go what is forwarded rather than wait for memory, findstate.go the waits for a state, lastcheck.go the
// last check, and respond.go acts on the decision. The packages below this one do the work.
//
// # What it protects, and from whom
//
// All callers' credentials pass through this package, and a caller's list is written from bytes that were read with
// listproxy's own rights. So:
//
//   - Nothing is written from memory before the upstream has said, to this caller's own credentials, that the caller may
//     list exactly this ([auth.Authorizer]). Only a yes counts.
//   - A token that the upstream has not accepted yet is reviewed first. Before that, neither the cluster's resources nor
//     memory are looked up.
//   - After the last wait, lastCheck checks once more everything on which the answer depends.
//   - The review and the lookup use one parsed value (policy.Request). A request that could be read in two ways is
//     forwarded.
//   - A forwarded request carries the caller's credentials and none of listproxy's. The transports for it
//     ([upstream.Transports]) hold no credentials, which is checked at the start. The only exception is the transport for
//     impersonated users, and every request that it sends names the user. Apart from that, listproxy's own credentials
//     are used only for its own requests: those of package snapshot's feeds, of packages cluster and upstream, and of
//     [auth.WithOwnAccount].
//   - No answer about an object is made up: no 403, 404, 410, 422. listproxy itself refuses only requests that are
//     malformed, beyond its bounds, not for this API server, or by a caller whose certificate it does not accept.
//   - No key, log line or error text contains a credential ([auth.Identity]).
package proxy
