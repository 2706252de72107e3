// Package auth identifies callers, and asks the API server what they may do.
//
//   - authenticator.go identifies the caller of a request by a client certificate or a token
//   - identity.go, impersonateheaders.go: the headers that show the API server who the caller is
//   - flow.go: the callers who share one part of the limits
//   - tokens.go: the API server's verdicts on tokens
//   - authorizer.go, impersonation.go: reviews of the rights of callers and of impersonators
//   - whoami.go: reviews of who a caller is
//   - reviewcache.go remembers the answers to reviews for a short time
package auth
