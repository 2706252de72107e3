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

// Answer is an answer of a server. Its body is decompressed, if the client does that.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// String returns the status, the Cache-Status and the beginning of the body.
func (a Answer) String() string {
	return fmt.Sprintf("%d [%s] %#.4000q", a.Code, a.Source(), bytes.TrimSpace(a.Body))
}

// Source returns the Cache-Status.
func (a Answer) Source() string { return a.Header.Get("Cache-Status") }

// FromMemory reports whether listproxy answered from memory.
func (a Answer) FromMemory() bool { return FromMemory(a.Header) }

// FromMemory is [Answer.FromMemory] for a header.
func FromMemory(header http.Header) bool {
	return strings.HasPrefix(header.Get("Cache-Status"), "listproxy; hit")
}

// NotThereYet reports whether this is kube-apiserver's error for a revision that its watch cache did not reach in the three
// seconds for which it waits (blockTimeout in k8s.io/apiserver/pkg/storage/cacher). The error's cause is a word in the body
// in any encoding.
func (a Answer) NotThereYet() bool {
	return a.Code == http.StatusGatewayTimeout && bytes.Contains(a.Body, []byte(metav1.CauseTypeResourceVersionTooLarge))
}

// Meta is the part of the metadata of lists and objects that tests read.
type Meta struct {
	Name            string
	UID             string
	ResourceVersion string
	Continue        string
}

// Meta returns the metadata of an answer in JSON, or the zero Meta.
func (a Answer) Meta() Meta {
	var o struct{ Metadata Meta }
	_ = json.Unmarshal(a.Body, &o)
	return o.Metadata
}

// Revision returns the revision of the list or object in an answer in JSON.
func (a Answer) Revision() (uint64, error) {
	revision, err := strconv.ParseUint(a.Meta().ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("no revision: %s", a)
	}
	return revision, nil
}
