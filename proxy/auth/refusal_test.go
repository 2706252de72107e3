package auth

import (
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// TestRefusal: Refusal.Write writes a Status, or plain text for discovery, where client-go does not decode a Status. The
// answer has the Audit-Id of the request. A 401 over HTTP/2 has "Connection: close", which closes the connection, as
// kube-apiserver does.
func TestRefusal(t *testing.T) {
	const plainText, asStatus = "text/plain; charset=utf-8", "application/json"
	for name, tt := range map[string]struct {
		path            string
		code            int
		protoMajor      int
		wantContentType string
		wantConnection  string
	}{
		"discovery, forbidden": {path: "/api", code: http.StatusForbidden, protoMajor: 1, wantContentType: plainText},
		"discovery, unauthorized over HTTP/2": {
			path: "/apis", code: http.StatusUnauthorized, protoMajor: 2, wantContentType: plainText, wantConnection: "close",
		},
		"a list, forbidden": {path: "/api/v1/pods", code: http.StatusForbidden, protoMajor: 2, wantContentType: asStatus},
		"a list, unauthorized over HTTP/2": {
			path: "/api/v1/pods", code: http.StatusUnauthorized, protoMajor: 2, wantContentType: asStatus, wantConnection: "close",
		},
		"/version, which is not discovery": {
			path: "/version", code: http.StatusUnauthorized, protoMajor: 1, wantContentType: asStatus,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest(http.MethodGet, tt.path, http.NoBody), httptest.NewRecorder()
			r.ProtoMajor = tt.protoMajor
			r.Header.Set("Audit-Id", "mine")
			refusal := &Refusal{Code: tt.code, Reason: metav1.StatusReason(http.StatusText(tt.code)), Message: "Do something else."}
			refusal.Write(w, r)
			wantBody := "Do something else.\n"
			if tt.wantContentType == asStatus {
				wantBody = `"message":"Do something else."`
			}
			expect.Same(t, tt.code, w.Code)
			expect.Same(t, tt.wantContentType, w.Header().Get("Content-Type"))
			expect.Same(t, tt.wantConnection, w.Header().Get("Connection"))
			expect.Same(t, "mine", w.Header().Get("Audit-Id"))
			expect.Says(t, w.Body.String(), wantBody)
		})
	}
}
