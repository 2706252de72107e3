package auth

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Authenticator identifies the caller of a request.
//
//   - A verified certificate identifies the same user as at kube-apiserver. A token in the same request is ignored:
//     kube-apiserver tries certificates first, too (k8s.io/kubernetes/pkg/kubeapiserver/authenticator).
//   - A caller with a certificate that is not accepted, and without a token, is refused. With a token, the certificate is
//     ignored.
//   - Otherwise the Authorization header identifies the caller, if there is exactly one ([policy.ReadAuthorization]). If
//     its value is a plain token, the caller may impersonate a user.
//   - Otherwise the caller is unknown.
//
// It is safe for concurrent use.
type Authenticator struct {
	secret identitySecret
	// certificates verifies client certificates; nil if listproxy accepts none.
	certificates *x509request.Authenticator
}

// NewAuthenticator returns an Authenticator that verifies the certificates of clients with clientCA, as kube-apiserver
// does with --client-ca-file. If clientCA is nil, it accepts no certificates. The keys of its identities depend on a random
// secret, so identities of two Authenticators cannot be compared.
func NewAuthenticator(clientCA x509request.VerifyOptionFunc) *Authenticator {
	a := &Authenticator{secret: newIdentitySecret()}
	if clientCA != nil {
		a.certificates = x509request.NewDynamic(clientCA, x509request.CommonNameUserConversion)
	}
	return a
}

// Refusal is the answer to a caller whose identity cannot be used.
type Refusal struct {
	Code    int
	Reason  metav1.StatusReason
	Message string
}

// Write answers r with the refusal. The answer to a discovery request is plain text, which client-go shows to its user.
// Instead of a Status, it would show "unknown" there.
func (f *Refusal) Write(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 && f.Code == http.StatusUnauthorized {
		w.Header().Set("Connection", "close") // as for a 401 of the API server's own (proxy/forward)
	}
	if r.URL.Path == "/api" || r.URL.Path == "/apis" {
		kubehttp.SetAuditID(w.Header(), r)
		http.Error(w, f.Message, f.Code)
		return
	}
	kubehttp.WriteStatus(w, r, f.Code, f.Reason, f.Message)
}

var (
	// unverifiedRefusal is for a caller with a certificate that is not accepted, and no token. As at kube-apiserver, such
	// a caller is not anonymous.
	unverifiedRefusal = &Refusal{
		Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized,
		Message: "The client certificate is not one that listproxy accepts: it must be valid now, be for client authentication, " +
			"and be signed by a CA in listproxy's --client-ca-file. Up to five certificates may be shown, each with another subject. " +
			"Use such a certificate, or a token.",
	}
	impersonationRefusal = &Refusal{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "A caller whom listproxy knows by a client certificate cannot impersonate others " +
			"through listproxy: the API server would ask for listproxy's right to do so, and not for yours. " +
			"Use a token with listproxy, or impersonate (--as) at the API server itself.",
	}
	unimpersonableRefusal = &Refusal{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "The user of this client certificate cannot be passed on: its name, uid, groups and extra must not be empty, " +
			"hold control characters, or begin or end with a space, and it must not be system:anonymous. " +
			"Use another certificate, or a token.",
	}
)

// Authenticate returns the identity of r's caller, or the refusal with which to answer r. The identity of an unknown caller
// has no key (see [Identity.Known]).
func (a *Authenticator) Authenticate(r *http.Request) (Identity, *Refusal) {
	if a.certificates == nil {
		return a.identifyByHeader(r), nil
	}
	verified, ok := a.verifyCertificate(r)
	switch {
	case verified != nil:
		return a.identifyVerified(r, verified)
	case !ok && !hasToken(r):
		return Identity{}, unverifiedRefusal
	}
	return a.identifyByHeader(r), nil
}

// hasToken reports whether kube-apiserver finds a token in r: in the Authorization header, or among the protocols of a
// WebSocket, where browsers send it. Then kube-apiserver decides about the caller. hasToken uses kube-apiserver's own code,
// so that a caller with a wrong certificate is treated in the same way here and there.
func hasToken(r *http.Request) bool {
	if policy.HasBearerToken(r.Header.Get("Authorization")) {
		return true
	}
	// The protocol authenticator calls find with the token, if there is one. As find accepts no token, the request stays
	// unchanged.
	found := false
	find := func(context.Context, string) (*authenticator.Response, bool, error) {
		found = true
		return nil, false, nil
	}
	_, _, _ = websocket.NewProtocolAuthenticator(authenticator.TokenFunc(find)).AuthenticateRequest(r)
	return found
}

// verifyCertificate returns the user whom the client's certificate names; nil if the client has shown none. ok is false if
// the certificate is not accepted. As at kube-apiserver, every request verifies it, so a connection does not outlive the
// trust in its CA.
func (a *Authenticator) verifyCertificate(r *http.Request) (verified user.Info, ok bool) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, true
	}
	if !isCheapToVerify(r.TLS.PeerCertificates) {
		return nil, false
	}
	response, ok, err := a.certificates.AuthenticateRequest(r)
	if err != nil {
		return nil, false
	}
	if !ok {
		// The certificate has no common name. kube-apiserver refuses it, too, if it trusts front proxies, as nearly all do:
		// no front proxy has such a certificate.
		return nil, false
	}
	return response.User, true
}

// maxCertificates bounds the certificates that a client may show: its own, and those up to a CA.
const maxCertificates = 5

// isCheapToVerify reports whether there are few certificates, no two of them with the same subject. Then each of them can
// have been signed by at most one of the others, and crypto/x509 checks fewer than maxCertificates signatures. Certificates
// with the same subject may all have signed each other: crypto/x509 would check a hundred signatures, for anybody who
// connects.
func isCheapToVerify(shown []*x509.Certificate) bool {
	subjects := map[string]bool{}
	for _, c := range shown {
		subjects[string(c.RawSubject)] = true
	}
	return len(shown) <= maxCertificates && len(subjects) == len(shown)
}

// identifyByHeader returns the identity by the Authorization header. The identity has a key only if there is exactly one such
// header, it is not empty, and its token, if any, is not ambiguous.
func (a *Authenticator) identifyByHeader(r *http.Request) Identity {
	values := r.Header["Authorization"]
	kind, token := policy.ReadAuthorization(values)
	if len(values) != 1 || values[0] == "" || kind == policy.AmbiguousToken {
		return Identity{kind: kind}
	}
	id := a.identifyCached(r, values[0], kind, token)
	if impersonated, ok := readImpersonation(r.Header); ok && kind == policy.PlainToken {
		return a.secret.identifyImpersonating(id, impersonated)
	}
	return id
}

// lastIdentityKey is the context key of the identity of a connection's last request: an *atomic.Pointer[Identity].
type lastIdentityKey struct{}

// WithConnection returns a context for the requests of a new connection, in which [Authenticator.Authenticate] keeps the
// identity of the last one.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastIdentityKey{}, &atomic.Pointer[Identity]{})
}

// identifyCached returns the identity of a caller who sends this Authorization header. If the last request of the connection
// sent the same header, its identity is used again: comparing headers costs less than an HMAC.
func (a *Authenticator) identifyCached(r *http.Request, header string, kind policy.CredentialKind, token string) Identity {
	last, ok := r.Context().Value(lastIdentityKey{}).(*atomic.Pointer[Identity])
	if !ok {
		return a.secret.identify(header, kind, token)
	}
	if id := last.Load(); id != nil && subtle.ConstantTimeCompare([]byte(*id.authorization), []byte(header)) == 1 {
		return *id
	}
	id := a.secret.identify(header, kind, token)
	last.Store(&id)
	return id
}

// identifyVerified returns the identity of the user whom a verified certificate names, or a refusal if listproxy cannot
// impersonate this user.
func (a *Authenticator) identifyVerified(r *http.Request, info user.Info) (Identity, *Refusal) {
	if hasImpersonation(r.Header) {
		return Identity{}, impersonationRefusal
	}
	impersonated, ok := userToImpersonate(info)
	if !ok {
		return Identity{}, unimpersonableRefusal
	}
	return a.IdentityOf(impersonated), nil
}

// IdentityOf returns the identity of a user whom listproxy has verified.
func (a *Authenticator) IdentityOf(u *user.DefaultInfo) Identity { return a.secret.identifyUser(u) }
