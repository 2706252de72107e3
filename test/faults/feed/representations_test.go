package feed

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	metadataOf   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// fromMemory asks until listproxy answers from memory.
func (r *rig) fromMemory(t *testing.T, accept, path string) (got ask.Answer) {
	t.Helper()
	r.until(path+" from memory", func() (err error) {
		if got, err = r.admin.GetAs(t.Context(), accept, path); err == nil && !strings.Contains(got.Source(), "hit") {
			err = fmt.Errorf("%d %s", got.Code, got.Source())
		}
		return err
	})
	return got
}

// same asks for a list until it is answered from memory, and holds it against the API server's.
func (r *rig) same(t *testing.T, accept, list string, q url.Values) {
	t.Helper()
	path := list + "?" + q.Encode()
	got := r.fromMemory(t, accept, path)
	want, err := r.direct.GetAs(t.Context(), accept, path)
	expect.NoError(t, err)
	if !bytes.Equal(got.Body, want.Body) || want.Code != http.StatusOK {
		t.Errorf("%s as %s: listproxy and the API server differ\n got: %q\nwant: %d %q", path, accept, got.Body, want.Code, want.Body)
	}
	for _, name := range []string{"Content-Type", "Warning", "Cache-Control"} {
		if fmt.Sprint(got.Header.Values(name)) != fmt.Sprint(want.Header.Values(name)) {
			t.Errorf("%s as %s: %s is %q, and %q directly", path, accept, name, got.Header.Values(name), want.Header.Values(name))
		}
	}
}
