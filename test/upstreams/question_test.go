package upstreams

import (
	"encoding/json"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// collection is what listproxy keeps, with a feed for each.
type collection struct{ plural, accept string }

func (c collection) path() string { return "/api/v1/" + c.plural }

func collections() []collection {
	var all []collection
	for _, plural := range []string{"configmaps", "pods"} {
		for _, accept := range []string{asJSON, asProtobuf, asMetadata} {
			all = append(all, collection{plural, accept})
		}
	}
	return all
}

// question is a list that is asked for, with its query in canonical form.
type question struct {
	collection
	query string
	// fixed: the answer is the same for ever.
	fixed bool
}

func (q question) target() string { return q.path() + "?" + q.query }

// at returns the question whose answer is the same for ever.
func (q question) at(revision uint64) question {
	if !q.fixed {
		q.query, q.fixed = exactly(revision), true
	}
	return q
}

func (q question) String() string { return "GET " + q.target() + " (" + q.accept + ")" }

const anyVersion = "resourceVersion=0"

func exactly(revision uint64) string {
	return "resourceVersion=" + strconv.FormatUint(revision, 10) + "&resourceVersionMatch=Exact"
}

func notOlderThan(revision uint64) string {
	return "resourceVersion=" + strconv.FormatUint(revision, 10) + "&resourceVersionMatch=NotOlderThan"
}

func firstPage(limit int, revision uint64) string {
	return "limit=" + strconv.Itoa(limit) + "&" + exactly(revision)
}

func nextPage(limit int, token string) string {
	return "continue=" + url.QueryEscape(token) + "&limit=" + strconv.Itoa(limit)
}

// list is what an answer says, as far as tests read it.
type list struct {
	revision uint64
	next     string // the token for the next page
	items    []json.RawMessage
}

// read decodes a list; the items of JSON only.
func (c collection) read(body []byte) (l list, err error) {
	if c.accept == asProtobuf {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return list{}, err
		}
		accessor, err := meta.ListAccessor(decoded)
		if err != nil {
			return list{}, err
		}
		l.next = accessor.GetContinue()
		l.revision, err = strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
		return l, err
	}
	var decoded struct {
		Metadata struct{ ResourceVersion, Continue string }
		Items    []json.RawMessage
	}
	if err := json.Unmarshal(body, &decoded); err != nil {
		return list{}, err
	}
	l = list{next: decoded.Metadata.Continue, items: decoded.Items}
	l.revision, err = strconv.ParseUint(decoded.Metadata.ResourceVersion, 10, 64)
	return l, err
}
