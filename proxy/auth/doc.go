// Package auth says who calls and what the caller may do.
//
//   - authenticator.go: who calls, by a client certificate or by a token
//   - identity.go, impersonateheaders.go: how a request presents the caller to the API server
//   - flow.go: to which flow a caller's requests belong
//   - tokens.go: what the API server has said of the caller's token
//   - authorizer.go, impersonation.go: what it says the caller may do, which it is asked as the caller
//   - whoami.go: and who the caller is
//   - reviewcache.go, revocations.go: the answers to both, which are remembered for a short time
package auth
