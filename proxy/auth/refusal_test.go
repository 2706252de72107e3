package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// TestRefusal: Refusal.Write writes a Status, or plain text for discovery, where client-go does not decode a Status. It has
// the Audit-Id of the request. A 401 closes an HTTP/2 connection, as kube-apiserver's does.
func TestRefusal(t *testing.T) {
	const text, status = "text/plain; charset=utf-8", "application/json"
	for _, tt := range []struct {
		path            string
		code            int
		protoMajor      int
		wantContentType string
		wantConnection  string
	}{
		{path: "/api", code: http.StatusForbidden, protoMajor: 1, wantContentType: text},
		{path: "/apis", code: http.StatusUnauthorized, protoMajor: 2, wantContentType: text, wantConnection: "close"},
		{path: "/api/v1/pods", code: http.StatusForbidden, protoMajor: 2, wantContentType: status},
		{path: "/api/v1/pods", code: http.StatusUnauthorized, protoMajor: 2, wantContentType: status, wantConnection: "close"},
		{path: "/version", code: http.StatusUnauthorized, protoMajor: 1, wantContentType: status},
	} {
		r, w := httptest.NewRequest(http.MethodGet, tt.path, http.NoBody), httptest.NewRecorder()
		r.ProtoMajor = tt.protoMajor
		r.Header.Set("Audit-Id", "mine")
		(&Refusal{Code: tt.code, Reason: metav1.StatusReasonUnauthorized, Message: "Do something else."}).Write(w, r)
		h := w.Header()
		expect.Same(t, []string{tt.wantContentType, tt.wantConnection, "mine"}, []string{h.Get("Content-Type"), h.Get("Connection"), h.Get("Audit-Id")})
		wantBody := "Do something else.\n"
		if tt.wantContentType == status {
			wantBody = `"message":"Do something else."`
		}
		if w.Code != tt.code || !strings.Contains(w.Body.String(), wantBody) {
			t.Errorf("%s: got %d %s, want %d %s", tt.path, w.Code, w.Body, tt.code, wantBody)
		}
	}
}
