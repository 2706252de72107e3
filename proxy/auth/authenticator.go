package auth

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Authenticator decides who the caller of a request is. The first of these cases that applies counts:
//
//   - A verified certificate. The caller is the user whom kube-apiserver would find in it. A token in the same request is
//     ignored, since kube-apiserver tries certificates first, too (k8s.io/kubernetes/pkg/kubeapiserver/authenticator).
//   - A certificate that is not accepted, in a request without a token. The request is refused.
//   - Exactly one Authorization header, which is not empty and can be read in one way only ([policy.ReadAuthorization]). The
//     plain token in this header identifies the caller, who may also impersonate a user. Without a plain token, the whole
//     header identifies the caller.
//   - Anything else. The caller is unidentified ([Identity]).
//
// An Authenticator is safe for concurrent use.
type Authenticator struct {
	secret identitySecret
	// certificates verifies client certificates. It is nil if listproxy accepts no certificates.
	certificates *x509request.Authenticator
}

// NewAuthenticator returns an Authenticator that verifies the certificates of clients as kube-apiserver does with
// --client-ca-file. verifyOptions returns the current CAs. If verifyOptions is nil, the Authenticator accepts no certificates.
// Each Authenticator has its own secret for the keys of identities, so identities of two Authenticators cannot be compared.
func NewAuthenticator(verifyOptions x509request.VerifyOptionFunc) *Authenticator {
	a := &Authenticator{}
	_, _ = rand.Read(a.secret[:]) // never fails
	if verifyOptions != nil {
		a.certificates = x509request.NewDynamic(verifyOptions, x509request.CommonNameUserConversion)
	}
	return a
}

// Authenticate returns the identity of r's caller, or the refusal with which to answer r.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, *Refusal) {
	verified, rejected := a.verifyCertificate(r)
	switch {
	case verified != nil:
		return a.identifyByCertificate(r, verified)
	case rejected && !hasToken(r):
		return Identity{}, rejectedCertificateRefusal
	}
	return a.identifyByHeader(r), nil
}

// verifyCertificate returns the user whom the client's certificate names. The user is nil if the client has shown no
// certificate. If the client has shown a certificate that is not accepted, the user is nil and rejected is true. As at
// kube-apiserver, the certificate is verified for every request. So a connection does not outlive the trust in its CA.
func (a *Authenticator) verifyCertificate(r *http.Request) (verified user.Info, rejected bool) {
	if a.certificates == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false
	}
	if !isCheapToVerify(r.TLS.PeerCertificates) {
		return nil, true
	}
	response, hasName, err := a.certificates.AuthenticateRequest(r)
	// A certificate without a common name (!hasName) names nobody. Nearly every kube-apiserver rejects it with an error, too:
	// there an authenticator for front proxies looks at the certificate as well, and does not know it.
	if err != nil || !hasName {
		return nil, true
	}
	return response.User, false
}

// maxCertificates is the number of certificates that a client may show: its own, and the intermediate ones up to a CA. The
// message of rejectedCertificateRefusal states this number, too.
const maxCertificates = 5

// isCheapToVerify reports whether crypto/x509 needs few checks of signatures to verify the certificates that a client has
// shown. It requires at most maxCertificates, all with different subjects. A certificate names its signer by the signer's
// subject, so each certificate then has at most one possible signer among the others. If all had the same subject, each could
// be the signer of any other, and anybody who connects could make crypto/x509 check a hundred signatures.
func isCheapToVerify(shown []*x509.Certificate) bool {
	subjects := map[string]bool{}
	for _, c := range shown {
		subjects[string(c.RawSubject)] = true
	}
	return len(shown) <= maxCertificates && len(subjects) == len(shown)
}

// identifyByCertificate returns the identity of the user whom a verified certificate names. It refuses requests with
// Impersonate-* headers, and users whom listproxy cannot impersonate.
func (a *Authenticator) identifyByCertificate(r *http.Request, verified user.Info) (Identity, *Refusal) {
	if hasImpersonation(r.Header) {
		return Identity{}, impersonateHeadersRefusal
	}
	impersonated, ok := userToImpersonate(verified)
	if !ok {
		return Identity{}, unsupportedUserRefusal
	}
	return a.NewVerifiedIdentity(impersonated), nil
}

// hasToken reports whether kube-apiserver finds a token in r: in the Authorization header, or among the protocols of a
// WebSocket, where browsers send it.
func hasToken(r *http.Request) bool {
	if policy.HasBearerToken(r.Header.Get("Authorization")) {
		return true
	}
	// acceptAll returns true, which accepts every token.
	acceptAll := func(context.Context, string) (*authenticator.Response, bool, error) { return nil, true, nil }
	// kube-apiserver's own authenticator for WebSockets removes an accepted token from the request. So it gets a copy.
	webSockets := websocket.NewProtocolAuthenticator(authenticator.TokenFunc(acceptAll))
	// An error means that kube-apiserver takes no token from the request: it is malformed, or there are two, for example.
	_, found, _ := webSockets.AuthenticateRequest(r.Clone(r.Context()))
	return found
}

// identifyByHeader returns the identity that the request's Authorization header gives to the caller, or that of an unidentified
// caller. With a plain token, the identity includes the user whom the caller impersonates, if any.
func (a *Authenticator) identifyByHeader(r *http.Request) Identity {
	values := r.Header["Authorization"]
	kind, token := policy.ReadAuthorization(values)
	if len(values) != 1 || values[0] == "" || kind == policy.AmbiguousToken {
		return Identity{kind: kind} // unidentified
	}
	id := a.secret.newIdentity(values[0], kind, token)
	if impersonated, ok := readImpersonation(r.Header); ok && kind == policy.PlainToken {
		return a.secret.newImpersonatingIdentity(id, impersonated)
	}
	return id
}

// Refusal is the answer to a request whose caller listproxy does not accept.
type Refusal struct {
	Code    int
	Reason  metav1.StatusReason
	Message string
}

// Write answers r with the refusal. The answer to a discovery request is plain text, since client-go does not decode a Status
// there, and would show its user only "unknown".
func (f *Refusal) Write(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 && f.Code == http.StatusUnauthorized {
		w.Header().Set("Connection", "close") // as kube-apiserver does (UnauthenticatedHTTP2DOSMitigation)
	}
	if r.URL.Path == "/api" || r.URL.Path == "/apis" {
		kubehttp.SetAuditID(w.Header(), r)
		http.Error(w, f.Message, f.Code)
		return
	}
	kubehttp.WriteStatus(w, r, f.Code, f.Reason, f.Message)
}

var (
	// rejectedCertificateRefusal is for a caller without a token whose certificate is not accepted. As at kube-apiserver, such
	// a caller is not anonymous.
	rejectedCertificateRefusal = &Refusal{
		Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized,
		Message: "The client certificate is not one that listproxy accepts: it must be valid now, be for client authentication, " +
			"and be signed by a CA in listproxy's --client-ca-file. Up to five certificates may be shown, each with another subject. " +
			"Use such a certificate, or a token.",
	}
	// impersonateHeadersRefusal is for a caller with a verified certificate who has sent Impersonate-* headers.
	impersonateHeadersRefusal = &Refusal{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "A caller whom listproxy knows by a client certificate cannot impersonate others " +
			"through listproxy: the API server would ask for listproxy's right to do so, and not for yours. " +
			"Use a token with listproxy, or impersonate (--as) at the API server itself.",
	}
	// unsupportedUserRefusal is for a caller whose verified certificate names a user whom Impersonate-* headers cannot name.
	unsupportedUserRefusal = &Refusal{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "The user of this client certificate cannot be passed on: its name, uid, groups and extra must not be empty, " +
			"hold control characters, or begin or end with a space, and it must not be system:anonymous. " +
			"Use another certificate, or a token.",
	}
)
