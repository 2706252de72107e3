package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// TestRefusal: it is a Status, but for where client-go decodes none. As with kube-apiserver's own, a 401 keeps
// no HTTP/2 connection, and each has the Audit-Id of its request.
func TestRefusal(t *testing.T) {
	const text, status = "text/plain; charset=utf-8", "application/json"
	for _, tt := range []struct {
		path                    string
		code, http              int
		contentType, connection string
	}{
		{path: "/api", code: http.StatusForbidden, http: 1, contentType: text},
		{path: "/apis", code: http.StatusUnauthorized, http: 2, contentType: text, connection: "close"},
		{path: "/api/v1/pods", code: http.StatusForbidden, http: 2, contentType: status},
		{path: "/api/v1/pods", code: http.StatusUnauthorized, http: 2, contentType: status, connection: "close"},
		{path: "/version", code: http.StatusUnauthorized, http: 1, contentType: status},
	} {
		r, w := httptest.NewRequest(http.MethodGet, tt.path, http.NoBody), httptest.NewRecorder()
		r.ProtoMajor = tt.http
		r.Header.Set("Audit-Id", "mine")
		(&Refusal{tt.code, metav1.StatusReasonUnauthorized, "Do something else."}).Write(w, r)
		h := w.Header()
		expect.Same(t, []string{tt.contentType, tt.connection, "mine"}, []string{h.Get("Content-Type"), h.Get("Connection"), h.Get("Audit-Id")})
		body := "Do something else.\n"
		if tt.contentType == status {
			body = `"message":"Do something else."`
		}
		if w.Code != tt.code || !strings.Contains(w.Body.String(), body) {
			t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
		}
	}
}
