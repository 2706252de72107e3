package main

import (
	"fmt"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/harness/workload"
)

const podsPath = "/api/v1/pods"

const (
	acceptJSON     = "application/json"
	acceptProtobuf = "application/vnd.kubernetes.protobuf,application/json" // client-go's
)

// row is one line of the table: a request.
type row struct {
	name   string
	path   string // with the query
	accept string
	gzip   bool
	http1  bool
}

func (r row) protocol() string {
	if r.http1 {
		return "1.1"
	}
	return "2"
}

func (r row) form() string {
	form := "JSON"
	if r.accept != acceptJSON {
		form = "protobuf"
	}
	if r.gzip {
		form += ", gzip"
	}
	return form
}

// state is what is asked for.
type state struct {
	pods     int
	page     int
	revision string // of the newest state
	start    string // of the page in the middle
	middle   string // its continue token, at revision
	name     string // of a pod
	nodes    workload.Pods
}

func list(query url.Values) string { return podsPath + "?" + query.Encode() }

func exactly(revision string, limit int) url.Values {
	q := url.Values{"resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

func anyVersion() url.Values { return url.Values{"resourceVersion": {"0"}} }

// exactlyAs changes a request for a state that moves into one for the state that was answered.
func exactlyAs(path string, answer fetched) (string, error) {
	u, err := url.Parse(path)
	if err != nil {
		return "", err
	}
	q := u.Query()
	if q.Has("continue") || q.Get("resourceVersionMatch") == "Exact" {
		return path, nil
	}
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), answer.plain)
	if err != nil {
		return "", fmt.Errorf("decode the answer to GET %s: %w", path, err)
	}
	said, err := meta.ListAccessor(decoded)
	if err != nil {
		return "", fmt.Errorf("decode the answer to GET %s: %w", path, err)
	}
	q.Set("resourceVersion", said.GetResourceVersion())
	q.Set("resourceVersionMatch", "Exact")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// rows are the requests that are measured while nothing changes.
func (s state) rows() []row {
	selected := func(kind, selector string) url.Values {
		q := anyVersion()
		q.Set(kind, selector)
		return q
	}
	type request struct {
		name  string
		query url.Values
		forms []row // nil: all
	}
	plain := row{accept: acceptJSON}
	zipped := row{accept: acceptJSON, gzip: true}
	protobuf := row{accept: acceptProtobuf}
	goClients := row{accept: acceptProtobuf, gzip: true}
	requests := []request{
		{"all", anyVersion(), nil},
		{"all, indented", selected("pretty", "true"), []row{plain, zipped}},
		{fmt.Sprintf("first %d", s.page), exactly(s.revision, s.page), nil},
		{
			fmt.Sprintf("%d in the middle", s.page),
			url.Values{"limit": {strconv.Itoa(s.page)}, "continue": {s.middle}},
			nil,
		},
		{"1% by label", selected("labelSelector", workload.HundredthLabel+"=7"), []row{plain, zipped, goClients}},
		{"one node's", selected("fieldSelector", "spec.nodeName="+s.nodes.Node(1)), []row{plain, zipped, goClients}},
		{"all, not older than", url.Values{"resourceVersion": {s.revision}, "resourceVersionMatch": {"NotOlderThan"}}, []row{goClients}},
		{"one by name", selected("fieldSelector", "metadata.name="+s.name), []row{plain, goClients}},
	}
	var rows []row
	for _, http1 := range []bool{false, true} {
		for _, r := range requests {
			if r.forms == nil {
				r.forms = []row{plain, zipped, protobuf, goClients}
			}
			for _, form := range r.forms {
				form.name, form.path, form.http1 = r.name, list(r.query), http1
				rows = append(rows, form)
			}
		}
	}
	return rows
}
