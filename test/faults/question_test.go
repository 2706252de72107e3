package faults

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
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

// definition of a custom kind.
func (k kind) definition() any {
	return fieldsOf{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": fieldsOf{"name": k.plural + "." + k.group},
		"spec": fieldsOf{
			"group": k.group, "scope": "Namespaced", "names": fieldsOf{"plural": k.plural, "kind": k.name},
			"versions": []any{fieldsOf{
				"name": "v1", "served": true, "storage": true,
				"schema": fieldsOf{"openAPIV3Schema": fieldsOf{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}
}

// form is a representation of a list.
type form struct{ name, accept string }

var (
	asJSON     = form{"json", "application/json"}
	asProtobuf = form{"protobuf", "application/vnd.kubernetes.protobuf"}
	asMetadata = form{"metadata", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
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
	query     string // in canonical form
	limit     int    // 0: none
	// after is the last object of the page before; zero at the first page.
	after identity
}

func (q question) target() string { return q.kind.path(q.namespace) + "?" + q.query }

func (q question) String() string { return "GET " + q.target() + " (" + q.form.name + ")" }

// newest reports whether the list is the newest that its server knows, whatever else it demands: these
// have an age.
func (q question) newest() bool {
	return !strings.Contains(q.query, "resourceVersionMatch=Exact") && !strings.Contains(q.query, "continue=")
}

// at returns the question whose answer is the same for ever.
func (q question) at(revision uint64) question {
	if q.limit == 0 {
		q.query = exactly(revision)
	}
	return q
}

func anyVersion() string { return "resourceVersion=0" }

func notOlderThan(revision uint64) string {
	return "resourceVersion=" + strconv.FormatUint(revision, 10) + "&resourceVersionMatch=NotOlderThan"
}

func exactly(revision uint64) string {
	return "resourceVersion=" + strconv.FormatUint(revision, 10) + "&resourceVersionMatch=Exact"
}

func limited(limit int, rest string) string { return "limit=" + strconv.Itoa(limit) + "&" + rest }

func continued(limit int, token string) string {
	return "continue=" + url.QueryEscape(token) + "&limit=" + strconv.Itoa(limit)
}

// identity of an object and its version.
type identity struct{ Namespace, Name, UID, ResourceVersion string }

// list is what an answer says, as far as cases read it.
type list struct {
	revision uint64
	next     string // the token for the next page
	objects  []identity
}

// read decodes a list.
func (f form) read(body []byte) (list, error) {
	if f == asProtobuf {
		return readProtobuf(body)
	}
	var decoded struct {
		Metadata struct{ ResourceVersion, Continue string }
		Items    []struct{ Metadata identity }
	}
	if err := json.Unmarshal(body, &decoded); err != nil {
		return list{}, err
	}
	revision, err := strconv.ParseUint(decoded.Metadata.ResourceVersion, 10, 64)
	l := list{revision: revision, next: decoded.Metadata.Continue}
	for _, item := range decoded.Items {
		l.objects = append(l.objects, item.Metadata)
	}
	return l, err
}

func readProtobuf(body []byte) (list, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return list{}, err
	}
	accessor, err := meta.ListAccessor(decoded)
	if err != nil {
		return list{}, err
	}
	revision, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		return list{}, err
	}
	l := list{revision: revision, next: accessor.GetContinue()}
	err = meta.EachListItem(decoded, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			l.objects = append(l.objects, identity{m.GetNamespace(), m.GetName(), string(m.GetUID()), m.GetResourceVersion()})
		}
		return err
	})
	return l, err
}
