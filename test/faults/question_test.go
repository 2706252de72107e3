package faults

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/listproxy/listproxy/test/harness/ask"
)

type fieldsOf = map[string]any

// kind is a resource that changes.
type kind struct{ group, name, plural string }

var (
	configMaps = kind{"", "ConfigMap", "configmaps"}
	pods       = kind{"", "Pod", "pods"}
	widgets    = kind{"faults.test", "Widget", "widgets"}

	kinds = []kind{configMaps, pods, widgets}
)

// path of the whole resource, or of one namespace.
func (k kind) path(namespace string) string {
	path := "/api/v1"
	if k.group != "" {
		path = "/apis/" + k.group + "/v1"
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.plural
}

func (k kind) apiVersion() string {
	if k.group == "" {
		return "v1"
	}
	return k.group + "/v1"
}

// eager is what --eager calls it.
func (k kind) eager() string {
	if k.group == "" {
		return k.plural
	}
	return k.plural + ".v1." + k.group
}

// object with a name and a turn, by which it changes.
func (k kind) object(name string, turn int) fieldsOf {
	object := fieldsOf{"apiVersion": k.apiVersion(), "kind": k.name, "metadata": fieldsOf{
		"name": name, "annotations": fieldsOf{"turn": strconv.Itoa(turn)},
	}}
	switch k {
	case configMaps:
		object["data"] = fieldsOf{"text": "<&>\u2028é"}
	case pods:
		object["spec"] = fieldsOf{"containers": []any{fieldsOf{"name": "main", "image": "registry.test/main:1"}}}
	case widgets:
		object["spec"] = fieldsOf{"z": turn, "a": fieldsOf{"y": []any{}}}
	}
	return object
}

// definitions is where custom kinds are defined.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definition of a custom kind, under the schema of its objects.
func (k kind) definition(schema fieldsOf) fieldsOf {
	return fieldsOf{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": fieldsOf{"name": k.plural + "." + k.group},
		"spec": fieldsOf{
			"group": k.group, "scope": "Namespaced", "names": fieldsOf{"plural": k.plural, "kind": k.name},
			"versions": versionsUnder(schema),
		},
	}
}

func versionsUnder(schema fieldsOf) []any {
	return []any{fieldsOf{"name": "v1", "served": true, "storage": true, "schema": fieldsOf{"openAPIV3Schema": schema}}}
}

// form is a representation of a list.
type form struct{ name, accept string }

// read decodes a list.
func (f form) read(body []byte) (ask.List, error) {
	if f == asBinaryMetadata {
		return readBinaryMetadata(body)
	}
	return ask.ReadList(f.accept, body)
}

var (
	asJSON     = form{"json", ask.JSON}
	asProtobuf = form{"protobuf", ask.Protobuf}
	asMetadata = form{"metadata", ask.Metadata}
)

// collection is what listproxy keeps, with a feed for each.
type collection struct {
	kind kind
	form form
}

func collections() []collection {
	var all []collection
	for _, k := range kinds {
		all = append(all, collection{k, asJSON}, collection{k, asMetadata})
		if k.group == "" {
			all = append(all, collection{k, asProtobuf})
		}
	}
	return all
}

// question is a list that is asked for.
type question struct {
	collection
	namespace string
	// generation selects objects by their label, which is their namespace's name and never changes; "": all.
	// There is none of pages.
	generation string
	query      string // in canonical form
	limit      int    // 0: none
	// after is the last object of the page before; zero at the first page.
	after ask.Identity
}

func (q question) target() string {
	target := q.kind.path(q.namespace) + "?"
	if q.generation != "" {
		target += "labelSelector=" + url.QueryEscape(generationLabel+"="+q.generation) + "&"
	}
	return target + q.query
}

func (q question) String() string { return "GET " + q.target() + " (" + q.form.name + ")" }

// newest reports whether the list is the newest that its server knows, whatever else it demands: these
// have an age.
func (q question) newest() bool {
	return !strings.Contains(q.query, "resourceVersionMatch=Exact") && !strings.Contains(q.query, "continue=")
}

// recent reports whether the list is to hold everything that was written before it was asked for.
func (q question) recent() bool {
	return !strings.Contains(q.query, "resourceVersion=") && !strings.Contains(q.query, "continue=")
}

// at returns the question whose answer is the same for ever.
func (q question) at(revision uint64) question {
	switch {
	case q.limit == 0:
		q.query = ask.Exactly(revision)
	case q.recent():
		q.query = ask.FirstPage(q.limit, ask.Exactly(revision))
	}
	return q
}
