package authn

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/test/expect"
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

// FuzzImpersonate: whom listproxy can impersonate at all, kube-apiserver takes for the same user, in the group
// of all who are authenticated. Of what the caller says of itself nothing is sent.
func FuzzImpersonate(f *testing.F) {
	f.Add("alice", "uid", "g", "h", "key", "value")
	f.Add("alice", "", "", "", "", "")
	f.Add("alice", "", user.AllAuthenticated, "g", "", "")
	f.Add("alice", "", user.AllUnauthenticated, "", "", "")
	f.Add("system:node:n", "", "system:nodes", "system:nodes", "", "")
	f.Add("system:serviceaccount:a:b", "", "", "", "", "")
	f.Add("system:serviceaccount:a:b", "", "system:masters", "", "authentication.kubernetes.io/credential-id", "X509SHA256=00")
	f.Add("ælice in chains, esq.", "", "gruppe ü", "a  b", "100%/ä\x00", "v")
	f.Add("a\nb", " ", "", "c", "K", "\x7f")
	f.Fuzz(func(t *testing.T, name, uid, first, second, key, value string) {
		given := &user.DefaultInfo{Name: name, UID: uid}
		for _, group := range []string{first, second} {
			if group != "" {
				given.Groups = append(given.Groups, group)
			}
		}
		if key+value != "" {
			given.Extra = map[string][]string{key: {value, "2"}}
		}
		sent, ok := impersonable(given)
		if !ok {
			return
		}
		h := http.Header{"Authorization": {"Bearer x"}, "Impersonate-User": {"root"}, "Impersonate-Extra-Scopes": {"all"}, "Accept": {"a"}}
		setImpersonation(h, sent)
		want := describeUser(given)
		if !slices.Contains(given.Groups, user.AllAuthenticated) && !slices.Contains(given.Groups, user.AllUnauthenticated) {
			want["groups"] = append(slices.Clone(given.Groups), user.AllAuthenticated)
		}
		expect.Same(t, want, describeUser(impersonated(t, h)))
		if h["Authorization"] != nil || h.Get("Accept") != "a" {
			t.Errorf("what else is sent: %v", h)
		}
		for name := range h {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("%q is no canonical name", name)
			}
		}
	})
}
