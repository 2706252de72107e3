// Package authn says who calls: by a client certificate, by a front proxy's headers or by a token
// ([Authenticator]); as whom listproxy impersonates a caller to the API server
// ([Identity.Present]); and to which share a caller's requests count ([ShareKey]).
package authn
