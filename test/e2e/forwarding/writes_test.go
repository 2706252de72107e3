package forwarding

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

// TestLongBody: how long a body may be, kube-apiserver says, in its own words, whether the client tells
// the length or not.
func TestLongBody(t *testing.T) {
	harness.Long(t)
	const target = "/api/v1/namespaces/team-a/configmaps?dryRun=All"
	eachWay(t, func(t *testing.T, via way) {
		for size, status := range map[int]int{
			1000 << 10: http.StatusCreated,
			1100 << 10: http.StatusUnprocessableEntity,   // more than a ConfigMap may hold
			3200 << 10: http.StatusRequestEntityTooLarge, // more than a request may hold
		} {
			for _, proto := range []int{1, 2} {
				for _, chunked := range []bool{false, true} {
					post := func(to way) (code int, said string) {
						var body io.Reader = strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"it":"` +
							strings.Repeat("x", size) + `"}}`)
						if chunked {
							body = struct{ io.Reader }{body}
						}
						res, err := to.speaking(proto).as(t, controlplane.Admin).Open(t.Context(), http.MethodPost, target, body)
						expect.NoError(t, err)
						defer func() { _ = res.Body.Close() }()
						text, err := io.ReadAll(res.Body)
						expect.NoError(t, err)
						return res.StatusCode, string(text)
					}
					code, got := post(via)
					_, want := post(direct)
					if code != status || code != http.StatusCreated && got != want || strings.Count(got, "x") != strings.Count(want, "x") {
						t.Errorf("HTTP/%d, %d bytes, chunked %v: %d: %.300s, not %.300s", proto, size, chunked, code, got, want)
					}
				}
			}
		}
	})
}
