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
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Authenticator says who sends a request.
//
//   - A certificate that is verified gives the same user as at kube-apiserver. A token in the
//     same request does not count, since kube-apiserver also tries certificates first
//     (k8s.io/kubernetes/pkg/kubeapiserver/authenticator).
//   - Else, if a request has exactly one Authorization header, that identifies the caller, unless
//     its token is written in an unusual way ([policy.ReadAuthorization]). The caller may impersonate
//     a user.
//   - Else the caller is unknown.
//
// It is safe for concurrent use.
type Authenticator struct {
	secret       identitySecret
	certificates *x509request.Authenticator // nil: certificates are not accepted
}

// NewAuthenticator returns an Authenticator. clientCA verifies the certificates of clients, as kube-apiserver does with
// --client-ca-file; nil: certificates are not accepted. Its keys are random, so identities are comparable only within
// this process.
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

// Write answers r.
//
// client-go does not decode a Status in answers to its discovery requests: its user would read
// "unknown". It passes on plain text, so for discovery the message is plain text.
func (f *Refusal) Write(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 && f.Code == http.StatusUnauthorized {
		w.Header().Set("Connection", "close") // as with the API server's own (Forwarder)
	}
	if r.URL.Path == "/api" || r.URL.Path == "/apis" {
		kubehttp.SetAuditID(w.Header(), r)
		http.Error(w, f.Message, f.Code)
		return
	}
	kubehttp.WriteStatus(w, r, f.Code, f.Reason, f.Message)
}

const (
	unverifiedMessage = "The client certificate is not one that listproxy accepts: it must be valid now, be for client authentication, " +
		"and be signed by a CA in listproxy's --client-ca-file. Up to five certificates may be shown, each with another subject. " +
		"Use such a certificate, or a token."
	impersonateMessage = "A caller whom listproxy knows by a client certificate cannot impersonate others " +
		"through listproxy: the API server would ask for listproxy's right to do so, and not for yours. " +
		"Use a token with listproxy, or impersonate (--as) at the API server itself."
	unimpersonableMessage = "The user of this client certificate cannot be passed on: its name, uid, groups and extra must be neither " +
		"empty nor hold control characters or outer spaces, and it must not be system:anonymous. Use another certificate, or a token."
)

var (
	// errNameless means that the certificate names nobody. A kube-apiserver that also believes front proxies, as nearly all
	// do, refuses such a certificate, since it is not a front proxy's.
	errNameless  = errors.New("the client certificate names nobody")
	errManyShown = errors.New("the client shows too many certificates, or two with one subject")
)

// Authenticate returns the identity of r's caller, or the refusal to answer.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, *Refusal) {
	if a.certificates == nil {
		return a.byAuthorization(r), nil
	}
	verified, err := a.verified(r)
	switch {
	case verified != nil:
		return a.impersonate(r, verified)
	case err != nil && !bringsToken(r):
		// As at kube-apiserver: a caller with a wrong certificate is not anonymous.
		return Identity{}, &Refusal{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, unverifiedMessage}
	}
	return a.byAuthorization(r), nil
}

// verified returns the user whom a certificate names; nil if none does. An error means that the
// client showed a certificate that could not be verified, or that names nobody. As at kube-apiserver,
// certificates are verified at every request: a connection does not outlive its CA.
func (a *Authenticator) verified(r *http.Request) (user.Info, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	if !quicklyVerified(r.TLS.PeerCertificates) {
		return nil, errManyShown
	}
	response, ok, err := a.certificates.AuthenticateRequest(r)
	if !ok {
		return nil, cmp.Or(err, errNameless)
	}
	return response.User, nil
}

// maxShown is the number of certificates that a client may show: its own, and those up to a CA.
const maxShown = 5

// quicklyVerified reports whether each certificate can have been signed by one other at most, and how
// many there are: to verify them then takes less than maxShown signatures. Of certificates with one
// name that may all have signed each other, crypto/x509 would check a hundred, for anybody who
// connects.
func quicklyVerified(shown []*x509.Certificate) bool {
	subjects := map[string]bool{}
	for _, c := range shown {
		subjects[string(c.RawSubject)] = true
	}
	return len(shown) <= maxShown && len(subjects) == len(shown)
}

// bringsToken reports whether kube-apiserver sees a token in r: as a rule in Authorization, else among
// the protocols of a WebSocket, as browsers send it. It reads the latter with kube-apiserver's own
// code: if only one of the two saw a token, a caller with a wrong certificate would be treated
// differently.
func bringsToken(r *http.Request) bool {
	if policy.BringsToken(r.Header.Get("Authorization")) {
		return true
	}
	seen := false
	look := func(context.Context, string) (*authenticator.Response, bool, error) {
		seen = true
		return nil, false, nil // which leaves the request as it is
	}
	_, _, _ = websocket.NewProtocolAuthenticator(authenticator.TokenFunc(look)).AuthenticateRequest(r)
	return seen
}

// byAuthorization is the identity of a request by its one Authorization value, which has a token in
// the usual form, or no token at all.
func (a *Authenticator) byAuthorization(r *http.Request) Identity {
	values := r.Header["Authorization"]
	by, token := policy.ReadAuthorization(values)
	if len(values) != 1 || values[0] == "" || by == policy.UnclearToken {
		return Identity{by: by}
	}
	id := a.ofConnection(r, values[0], by, token)
	if named, ok := readImpersonation(r.Header); ok && by == policy.PlainToken {
		return a.secret.impersonating(id, named)
	}
	return id
}

// lastKey is the key of the identity that a connection's last request had, in the context of its requests.
type lastKey struct{}

// WithConnection returns the context of a new connection, for the requests on it.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastKey{}, &atomic.Pointer[Identity]{})
}

// ofConnection is ofAuthorization. It remembers the last identity on each connection, for as long as this is open: a
// client sends its token with every request, and to make a key takes longer than to compare.
func (a *Authenticator) ofConnection(r *http.Request, value string, by policy.Credentials, token string) Identity {
	last, ok := r.Context().Value(lastKey{}).(*atomic.Pointer[Identity])
	if !ok {
		return a.secret.ofAuthorization(value, by, token)
	}
	if id := last.Load(); id != nil && subtle.ConstantTimeCompare([]byte(*id.authorization), []byte(value)) == 1 {
		return *id
	}
	id := a.secret.ofAuthorization(value, by, token)
	last.Store(&id)
	return id
}

// impersonate is the identity of a user who was verified here.
func (a *Authenticator) impersonate(r *http.Request, info user.Info) (Identity, *Refusal) {
	if asksToImpersonate(r.Header) {
		return Identity{}, &Refusal{http.StatusForbidden, metav1.StatusReasonForbidden, impersonateMessage}
	}
	impersonated, ok := impersonable(info)
	if !ok {
		return Identity{}, &Refusal{http.StatusForbidden, metav1.StatusReasonForbidden, unimpersonableMessage}
	}
	return a.OfUser(impersonated), nil
}

// OfUser returns the identity of a verified user.
func (a *Authenticator) OfUser(u *user.DefaultInfo) Identity { return a.secret.ofImpersonated(u) }
