// Package auth identifies callers, and asks the API server what they may do.
//
//   - authenticator.go: who the caller of a request is, by a client certificate or a token
//   - identity.go, key.go, impersonateheaders.go: the headers that show the API server who the caller is
//   - flow.go: the flows of callers, each of which has its share of the limits
//   - verdicts.go: the API server's verdicts on tokens, which decide whose flow a caller is in
//   - authorizer.go, impersonation.go: reviews of what callers may do, and of whom they may impersonate
//   - whoami.go: reviews of who a caller is
//   - send.go: how reviews are sent to the API server
//   - reviewcache.go: the answers to reviews, which are remembered for a short time
//
// A review is a SelfSubjectAccessReview or a SelfSubjectReview of the Kubernetes API, which listproxy sends as the caller.
package auth
