// Package proxy is the way of a request: it decides whether a list is answered from memory, and
// writes the page, or forwards the request. Read [Handler.Chain] first: it names every filter on
// the way. decide.go has the stages of the decision, mayanswer.go its last word, respond.go what
// follows from it. What these ask has packages of its own below this one.
//
// # What it protects, and from whom
//
// Everyone's credentials pass here, and one caller's list is written from bytes that were read with
// listproxy's own rights. So:
//
//   - Nothing is written from memory before the upstream has said, to this caller's own
//     credentials, that the caller may list exactly this ([authz.Authorizer]). Only a yes counts.
//   - While the upstream has not accepted a caller's token, nothing is reviewed for it, and nothing
//     of the cluster or of memory is looked up.
//   - Whether everything that was found is still true is checked once, after the last wait
//     (mayAnswer).
//   - The review and the lookup use one parsed value (policy.Request). A request that could be read
//     in two ways is forwarded.
//   - A forwarded request carries the caller's credentials and none of listproxy's. The transports
//     for it ([upstream.Transports]) hold no credentials, which is checked at the start. The only
//     exception is the transport for impersonated users, which sends nothing without saying who the
//     user is. Only what asks for listproxy itself has its credentials: the feeds of package
//     snapshot, [authz.Impersonator], package discovery, and the checks of [upstream.Endpoints].
//   - No answer is made up: no 401, 403, 404, 410, 422. listproxy refuses for itself only what is
//     malformed, too much, or no request to this API server at all.
//   - Credentials are in no key, log line or error text ([authn.Identity]).
package proxy
