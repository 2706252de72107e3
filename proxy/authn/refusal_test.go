package authn

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// TestRefusal: it is a Status, but for where client-go decodes none. As with kube-apiserver's own, a 401 keeps
// no HTTP/2 connection.
func TestRefusal(t *testing.T) {
	const text, status = "text/plain; charset=utf-8", "application/json"
	for _, tt := range []struct {
		path                    string
		code, http              int
		contentType, connection string
	}{
		{"/api", http.StatusForbidden, 1, text, ""},
		{"/apis", http.StatusUnauthorized, 2, text, "close"},
		{"/api/v1/pods", http.StatusForbidden, 2, status, ""},
		{"/api/v1/pods", http.StatusUnauthorized, 2, status, "close"},
		{"/version", http.StatusUnauthorized, 1, status, ""},
	} {
		w := refused(tt.path, tt.code, tt.http, "mine")
		expect.Same(t, []string{tt.contentType, tt.connection}, []string{w.Header().Get("Content-Type"), w.Header().Get("Connection")})
		body := "Do something else.\n"
		if tt.contentType == status {
			body = `"message":"Do something else."`
		}
		if w.Code != tt.code || !strings.Contains(w.Body.String(), body) {
			t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
		}
	}
}

// TestRefusalHasAuditID as every answer of kube-apiserver's: the caller's own, or a new one.
func TestRefusalHasAuditID(t *testing.T) {
	for _, path := range []string{"/api", "/version"} {
		of := func(own string) string {
			return refused(path, http.StatusUnauthorized, 1, own).Header().Get("Audit-Id")
		}
		expect.Same(t, "mine", of("mine"))
		if one, other := of(""), of(""); uuid.Validate(one) != nil || one == other {
			t.Errorf("%s: %q and %q are not new", path, one, other)
		}
	}
}

// refused is the answer to a request that is refused with that code, and had that Audit-Id.
func refused(path string, code, major int, auditID string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, path, http.NoBody), httptest.NewRecorder()
	r.ProtoMajor = major
	r.Header.Set("Audit-Id", auditID)
	(&Refusal{code, metav1.StatusReasonUnauthorized, "Do something else."}).Write(w, r)
	return w
}
