package source

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// PageQuery returns the query of one page of a list at exactly a revision. The page begins with the key start, or with the
// first object if start is empty.
func (s *Source) PageQuery(revision uint64, start string, limit int64) url.Values {
	query := ExactQuery(revision)
	if start != "" {
		query = url.Values{"continue": {s.Token(revision, start)}} // The token has the revision.
	}
	query.Set("limit", strconv.FormatInt(limit, 10))
	return query
}

// ExactQuery returns the query of a list at exactly a revision: resourceVersion=7&resourceVersionMatch=Exact.
func ExactQuery(revision uint64) url.Values {
	return url.Values{
		"resourceVersion":      {strconv.FormatUint(revision, 10)},
		"resourceVersionMatch": {"Exact"},
	}
}

// NameSelector returns the field selector for a name.
func NameSelector(name string) string { return wire.NameField + "=" + fields.EscapeValue(name) }

// The namespace and the name of an object that does not exist. Only names of RBAC objects may have a '~', and nobody gives this
// name to one.
const (
	probeNamespace = "default"
	probeName      = "~listproxy-probe"
)

// EmptySelection returns the namespace and the field selector with which a list or a watch has no objects. They select one
// object that does not exist, so the upstream looks up a single key.
func (s *Source) EmptySelection() (namespace, fieldSelector string) {
	if s.Collection.Namespaced {
		namespace = probeNamespace
	}
	return namespace, NameSelector(probeName)
}

// Key returns an object's key, "namespace/name" or "name". The API server orders objects by their keys. The error is
//
//   - a [wire.InconsistencyError] if the object has no name, has a namespace in a cluster-scoped resource, or has none in a
//     namespaced resource
//   - [wire.ErrForm] if the name or the namespace is not UTF-8
func (s *Source) Key(m wire.ObjectMeta) (string, error) {
	if m.Name == "" || (m.Namespace != "") != s.Collection.Namespaced {
		return "", wire.Inconsistent("an object without a name, or with a namespace that does not fit the resource")
	}
	// Names of RBAC objects may have any bytes. JSON has U+FFFD in place of bytes that are not UTF-8, so listproxy does not
	// know the real key, on which the order of objects and the continue tokens depend.
	if strings.ContainsRune(m.Name, utf8.RuneError) || strings.ContainsRune(m.Namespace, utf8.RuneError) {
		return "", fmt.Errorf("%w: an object's name is not UTF-8", wire.ErrForm)
	}
	return index.JoinKey(m.Namespace, m.Name), nil
}
