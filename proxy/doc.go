// Package proxy decides for each request whether it is answered from memory, and then writes the answer or forwards the
// request. The packages below this one do the work. A request passes these files:
//
//   - handler.go: every filter on the request's way ([Handler.Chain]). Read it first.
//   - decide.go: the stages of the decision; findstate.go: the waits for a state
//   - forwardnow.go: the lists that are forwarded instead of waiting for memory
//   - respond.go: what follows from the decision; lastcheck.go: the last check before an answer
//   - body.go, bodywriter.go, watch.go: the answer from memory, and audit.go: its audit event
//   - forwardedlist.go: what the answer to a forwarded list proves
//
// warmup.go loads collections before the first request. These words are used throughout:
//
//   - The upstream is kube-apiserver, together with any load balancer in front of it.
//   - Memory has copies of the cluster's resources ([snapshot.Collections]). A state is all objects of one resource at one
//     revision.
//   - A review asks kube-apiserver whether a caller may read something (SelfSubjectAccessReview).
//   - A probe asks kube-apiserver for its current revision. A state that has reached this revision is proven to be new enough
//     for all requests that came before the probe.
//   - A seat is the right of a request to be handled now. Room is the right to hold the bytes of an answer ([limits.Limits]).
//   - A reason to forward a request ([reason.Reason]) is called why in the code.
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
//   - A forwarded request carries the caller's credentials and none of listproxy's. Its transport ([upstream.Transports])
//     holds no credentials, which is checked at the start.
//   - There is one exception: a caller with a client certificate is impersonated. The transport for such callers holds
//     listproxy's own credentials, and every request names the user.
//   - Apart from that, listproxy's own credentials are used only for its own requests: those of package snapshot's feeds, of
//     packages cluster and upstream, and of [auth.WithOwnAccount].
//   - No answer about an object is made up: no 403, 404, 410, 422. listproxy itself refuses only requests that are
//     malformed, beyond its bounds, not for this API server, or by a caller whose certificate it does not accept.
//   - No key, log line or error text contains a credential ([auth.Identity]).
package proxy
