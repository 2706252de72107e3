package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/group"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// impersonated is what kube-apiserver's own filter makes of headers, for a requestor who may
// impersonate everybody.
func impersonated(t testing.TB, h http.Header) user.Info {
	t.Helper()
	var seen user.Info
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	handler := impersonation.WithImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen, _ = request.UserFrom(r.Context())
	}), allow, serializer.NewCodecFactory(runtime.NewScheme()))
	r := httptest.NewRequestWithContext(request.WithUser(t.Context(), &user.DefaultInfo{Name: "listproxy"}), http.MethodGet, "/", nil)
	// As they are read at the other end of a connection.
	for name, values := range h {
		for _, value := range values {
			r.Header.Add(name, strings.TrimSpace(value))
		}
	}
	handler.ServeHTTP(httptest.NewRecorder(), r)
	return seen
}

// TestImpersonatedIsTheCertificatesUser: kube-apiserver sees the same user, impersonated by the
// proxy, as it would by the certificate itself. Both readings are its own code.
func TestImpersonatedIsTheCertificatesUser(t *testing.T) {
	ca := proxytest.NewCA(t)
	direct := group.NewAuthenticatedGroupAdder(x509request.NewDynamic(ca.Options, x509request.CommonNameUserConversion))
	identifier, err := New(Config{ClientCA: ca.Options})
	expect.NoError(t, err)
	for name, subject := range map[string]pkix.Name{
		"a name":                    {CommonName: "alice"},
		"groups":                    {CommonName: "alice", Organization: []string{"a", "system:masters", "a"}},
		"a node":                    {CommonName: "system:node:n", Organization: []string{"system:nodes"}},
		"a service account":         {CommonName: "system:serviceaccount:kube-system:x"},
		"a service account, groups": {CommonName: "system:serviceaccount:kube-system:x", Organization: []string{"g"}},
		"authenticated already":     {CommonName: "alice", Organization: []string{user.AllAuthenticated, "g"}},
		"unauthenticated":           {CommonName: "alice", Organization: []string{user.AllUnauthenticated}},
		"not ASCII":                 {CommonName: "ælice", Organization: []string{"gruppe ü"}},
		"inner spaces":              {CommonName: "alice in chains, esq.", Organization: []string{"a  b"}},
	} {
		t.Run(name, func(t *testing.T) {
			certificate := ca.Issue(t, subject, nil)
			r := &http.Request{Header: http.Header{}, TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}}
			want, ok, err := direct.AuthenticateRequest(r.WithContext(t.Context()))
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			id, refusal := identifier.Authenticate(r)
			if refusal != nil {
				t.Fatal(refusal)
			}
			h := http.Header{"Authorization": {"Bearer x"}, "Impersonate-User": {"root"}, "Impersonate-Extra-Scopes": {"all"}, "Accept": {"a"}}
			setImpersonation(h, id.Impersonated())
			expect.Same(t, describeUser(want.User), describeUser(impersonated(t, h)))
			if h["Authorization"] != nil || h.Get("Accept") != "a" {
				t.Errorf("what else is sent: %v", h)
			}
		})
	}
}

// describeUser is all there is to know of a user.
func describeUser(u user.Info) map[string][]string {
	if u == nil {
		return nil
	}
	all := map[string][]string{"name": {u.GetName()}, "uid": {u.GetUID()}, "groups": u.GetGroups()}
	for name, values := range u.GetExtra() {
		all["extra "+name] = values
	}
	return all
}

// FuzzImpersonate: what can be impersonated at all, kube-apiserver reads as it was said.
func FuzzImpersonate(f *testing.F) {
	f.Add("alice", "uid", "g", "h", "key", "value")
	f.Add("system:serviceaccount:a:b", "", "system:masters", "", "authentication.kubernetes.io/credential-id", "X509SHA256=00")
	f.Add("a", "", "b", "c", "100%/ä\x00", "v")
	f.Add("a\nb", " ", "", "c", "K", "\x7f")
	f.Fuzz(func(t *testing.T, name, uid, first, second, key, value string) {
		given := &user.DefaultInfo{Name: name, UID: uid, Groups: []string{first, second}, Extra: map[string][]string{key: {value, "2"}}}
		sent, ok := impersonable(given)
		if !ok {
			return
		}
		h := http.Header{}
		setImpersonation(h, sent)
		want := describeUser(given)
		if !slices.Contains(given.Groups, user.AllAuthenticated) && !slices.Contains(given.Groups, user.AllUnauthenticated) {
			want["groups"] = append(slices.Clone(given.Groups), user.AllAuthenticated)
		}
		expect.Same(t, want, describeUser(impersonated(t, h)))
		for name := range maps.Keys(h) {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("%q is no canonical name", name)
			}
		}
	})
}
