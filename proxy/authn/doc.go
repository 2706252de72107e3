// Package authn says who calls, by a client certificate or by a token ([Authenticator]). It also
// says how a request presents the caller to the API server ([Identity.Present]), and to which flow a
// caller's requests belong ([FlowOf]).
package authn
