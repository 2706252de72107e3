package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Authenticator identifies the caller of a request.
//
//   - A verified certificate identifies the same user as at kube-apiserver. A token in the same request does not count:
//     kube-apiserver tries certificates first, too (k8s.io/kubernetes/pkg/kubeapiserver/authenticator).
//   - Otherwise the Authorization header identifies the caller, if there is exactly one, and its token is written in
//     the usual way ([policy.ReadAuthorization]). This caller may impersonate a user.
//   - Otherwise the caller is unknown.
//
// It is safe for concurrent use.
type Authenticator struct {
	secret       identitySecret
	certificates *x509request.Authenticator // nil: certificates are not accepted
}

// NewAuthenticator returns an Authenticator that verifies the certificates of clients with clientCA, as kube-apiserver
// does with --client-ca-file. If clientCA is nil it accepts no certificates. Its keys are random, so identities of
// two Authenticators cannot be compared.
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

// Write answers r with the refusal.
//
// client-go does not decode a Status in the answer to a discovery request: its user would read "unknown". It passes on
// plain text, so the answer to discovery is plain text.
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
	// unverifiedRefusal is for a caller with a wrong certificate, who is not anonymous, as at kube-apiserver.
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
		Message: "The user of this client certificate cannot be passed on: its name, uid, groups and extra must be neither " +
			"empty nor hold control characters or outer spaces, and it must not be system:anonymous. Use another certificate, or a token.",
	}
)

var (
	// errNameless means that the certificate has no name. A kube-apiserver that trusts front proxies, as nearly all do,
	// refuses such a certificate, since it is not a front proxy's.
	errNameless            = errors.New("the client certificate names nobody")
	errTooManyCertificates = errors.New("the client shows too many certificates, or two with one subject")
)

// Authenticate returns the identity of r's caller, or the refusal with which to answer r.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, *Refusal) {
	if a.certificates == nil {
		return a.identifyByHeader(r), nil
	}
	verified, err := a.verifyCertificate(r)
	switch {
	case verified != nil:
		return a.identifyVerified(r, verified)
	case err != nil && !policy.HasBearerToken(r.Header.Get("Authorization")):
		return Identity{}, unverifiedRefusal
	}
	return a.identifyByHeader(r), nil
}

// verifyCertificate returns the user whom the client's certificate names, or nil if the client has shown none. An error
// means that the certificate cannot be verified, or names nobody. As at kube-apiserver, it is verified at every
// request: a connection does not outlive its CA.
func (a *Authenticator) verifyCertificate(r *http.Request) (user.Info, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	if !isCheapToVerify(r.TLS.PeerCertificates) {
		return nil, errTooManyCertificates
	}
	response, ok, err := a.certificates.AuthenticateRequest(r)
	if !ok {
		return nil, cmp.Or(err, errNameless)
	}
	return response.User, nil
}

// maxCertificates is the number of certificates that a client may show: its own, and those up to a CA.
const maxCertificates = 5

// isCheapToVerify reports whether there are few certificates, and each has another subject. Then each can have been
// signed by one other at most, and fewer than maxCertificates signatures are checked. Among certificates of one
// subject, which may all have signed each other, crypto/x509 would check a hundred, for anybody who connects.
func isCheapToVerify(shown []*x509.Certificate) bool {
	subjects := map[string]bool{}
	for _, c := range shown {
		subjects[string(c.RawSubject)] = true
	}
	return len(shown) <= maxCertificates && len(subjects) == len(shown)
}

// identifyByHeader returns the identity that the Authorization header shows. It has no key unless there is exactly one
// header, with a token in the usual form or none.
func (a *Authenticator) identifyByHeader(r *http.Request) Identity {
	values := r.Header["Authorization"]
	kind, token := policy.ReadAuthorization(values)
	if len(values) != 1 || values[0] == "" || kind == policy.AmbiguousToken {
		return Identity{kind: kind}
	}
	id := a.identifyByConnection(r, values[0], kind, token)
	if named, ok := readImpersonation(r.Header); ok && kind == policy.PlainToken {
		return a.secret.identifyImpersonating(id, named)
	}
	return id
}

// lastIdentityKey is the context key of the identity that the connection's last request had.
type lastIdentityKey struct{}

// WithConnection returns the context of a new connection, in which the identity of its last request is remembered.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastIdentityKey{}, &atomic.Pointer[Identity]{})
}

// identifyByConnection returns the identity of a caller who sends this Authorization header. It remembers the last one
// of each connection: a client sends its token with every request, and to compare headers costs less than an HMAC.
func (a *Authenticator) identifyByConnection(r *http.Request, header string, kind policy.Credentials, token string) Identity {
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

// identifyVerified returns the identity of a user who was verified by certificate, if listproxy can impersonate this
// user.
func (a *Authenticator) identifyVerified(r *http.Request, info user.Info) (Identity, *Refusal) {
	if hasImpersonation(r.Header) {
		return Identity{}, impersonationRefusal
	}
	impersonated, ok := impersonable(info)
	if !ok {
		return Identity{}, unimpersonableRefusal
	}
	return a.OfUser(impersonated), nil
}

// OfUser returns the identity of a user whom listproxy has verified.
func (a *Authenticator) OfUser(u *user.DefaultInfo) Identity { return a.secret.identifyUser(u) }
