package ask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer is what a server said. The body is without its content encoding.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// String is for messages: of a long body it has the beginning only.
func (a Answer) String() string {
	return fmt.Sprintf("%d [%s] %#.4000q", a.Code, a.Source(), bytes.TrimSpace(a.Body))
}

// Source is what listproxy says about where its answer came from: its Cache-Status.
func (a Answer) Source() string { return a.Header.Get("Cache-Status") }

// FromMemory reports whether listproxy answered by itself.
func (a Answer) FromMemory() bool { return FromMemory(a.Header) }

// FromMemory is [Answer.FromMemory] of a header.
func FromMemory(header http.Header) bool {
	return strings.HasPrefix(header.Get("Cache-Status"), "listproxy; hit")
}

// NotThereYet reports whether kube-apiserver said that its watch cache did not come to the demanded
// revision within the 3 seconds for which it waits (blockTimeout in
// k8s.io/apiserver/pkg/storage/cacher). That is an answer, and says nothing of who forwarded it. The
// cause is a word in the body in any encoding.
func (a Answer) NotThereYet() bool {
	return a.Code == http.StatusGatewayTimeout && bytes.Contains(a.Body, []byte(metav1.CauseTypeResourceVersionTooLarge))
}

// Meta is what tests read of the metadata of lists and objects.
type Meta struct {
	Name            string
	UID             string
	ResourceVersion string
	Continue        string
}

// Meta reads the metadata of an answer in JSON. What has none, such as a Status, has no revision.
func (a Answer) Meta() Meta {
	var o struct{ Metadata Meta }
	_ = json.Unmarshal(a.Body, &o)
	return o.Metadata
}

// Revision is that of the list or object in an answer in JSON.
func (a Answer) Revision() (uint64, error) {
	revision, err := strconv.ParseUint(a.Meta().ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("no revision: %s", a)
	}
	return revision, nil
}
