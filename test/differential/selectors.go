package differential

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// Field is a field that the API server selects by, with values that some objects have and some that
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// labelSelectors of the whole grammar, over the labels that the churn sets (see labels).
var labelSelectors = []string{
	"tier=web", "tier==web", "tier!=web", "tier=", "tier", "!tier", "tier=nothing", "tier!=nothing",
	"tier in (web,db)", "tier in (web)", "tier in ()", "tier in (,db)", "tier notin (web,db)", "tier notin (web)",
	"turn>2", "turn<3", "turn>2,turn<4", "turn=1,tier=web", "turn!=3,tier", "!tier,turn", "tier in (web,db),turn notin (1,2),!none",
	"example.test/part-of", "example.test/part-of=x.y_z-1", "example.test/part-of!=x.y_z-1,tier=db", "!example.test/part-of",
	" tier = web ", "tier  in  ( web , db )", "tier=web , turn", "! tier", "tier notin(db)", "turn > 1", "tier=web,tier=db", "tier=web,tier=web",
	" ", "notin", "in=x", "in notin (in)", "in=in", "weight>0", "weight<10", "none",
}

// badSelectors are refused.
var badSelectors = []string{
	"tier in (", "=x", "a b", "tier in web", "turn>x", "tier=a b", "tier===web", "-x=1", "tier,,turn", "!tier=web", "a/b/c", "tier in (web", ",", "x=" + "é",
}

// badFields are refused for most types, or read in a way of their own.
var badFields = []string{
	"spec.unknown=x", "bad", "metadata.labels=x", "metadata.name", "metadata.name>a", "spec.host=churn-a", "status.podIPs=10.1.0.1",
	"metadata.uid=x", "metadata.name=a\\", "=x", "spec.nodeName in (a)", "name=churn-a", "metadata.name=a,spec.unknown=x", "Metadata.name=a",
}

func (g *Generator) pick(of []string) string { return of[g.rng.IntN(len(of))] }

// labelSelector makes up a valid label selector.
func (g *Generator) labelSelector() string { return g.pick(labelSelectors) }

// metadataSelector makes up a field selector that every type has.
func (g *Generator) metadataSelector(r cluster.Resource) string {
	terms := []string{g.nameTerm(r)}
	if r.Namespaced {
		switch g.rng.IntN(4) {
		case 0:
			terms = []string{g.namespaceTerm()}
		case 1:
			terms = append(terms, g.namespaceTerm())
		}
	}
	if g.one(6) {
		terms = append(terms, g.nameTerm(r))
	}
	return strings.Join(terms, ",")
}

func (g *Generator) nameTerm(r cluster.Resource) string {
	names := append(r.Names(), "none", "")
	// What leaves many is asked for more often than what leaves one.
	return nameField + g.pick([]string{"=", "==", "!=", "!=", "!="}) + g.pick(names)
}

func (g *Generator) namespaceTerm() string {
	return namespaceField + g.pick([]string{"=", "==", "!=", "!="}) + g.pick(append(slices.Clone(g.spaces), "none", "", "Not_A_Name"))
}

// typeSelector makes up a field selector with the type's own fields.
func (g *Generator) typeSelector(r cluster.Resource) string {
	terms := []string{g.typeTerm(r)}
	for g.one(3) {
		terms = append(terms, g.typeTerm(r))
	}
	if g.one(5) {
		terms = append(terms, g.metadataSelector(r))
	}
	if g.one(10) {
		terms = append([]string{""}, terms...) // empty terms are skipped
	}
	return strings.Join(terms, ",")
}

func (g *Generator) typeTerm(r cluster.Resource) string {
	f := r.Fields[g.rng.IntN(len(r.Fields))]
	return f.Name + g.pick([]string{"=", "==", "!=", "!="}) + fields.EscapeValue(g.pick(f.Values))
}

// selectBy gives the question selectors of a kind, in place of those it has.
func (g *Generator) selectBy(q *Question, kind Selector) {
	q.Query.Del("labelSelector")
	q.Query.Del("fieldSelector")
	if kind == Labels || kind == Both {
		q.Query.Set("labelSelector", g.labelSelector())
	}
	if kind == Fields || kind == Both && g.one(2) {
		if len(q.Resource.Fields) > 0 {
			q.Query.Set("fieldSelector", g.typeSelector(q.Resource))
			return
		}
		kind = Metadata
	}
	if kind == Metadata || kind == Both {
		q.Query.Set("fieldSelector", g.metadataSelector(q.Resource))
	}
}

// exactField returns the value that a field selector requires of a field.
func exactField(selector, field string) (string, bool) {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return "", false
	}
	return parsed.RequiresExactMatch(field)
}

// narrowed returns the namespace whose objects the API server reads: a field selector can leave one
// of all of them, but not on a page that follows another (registry.Store.ListPredicate).
func (q Question) narrowed() string {
	if q.Namespace != "" || !q.Resource.Namespaced || q.Query.Get("continue") != "" {
		return q.Namespace
	}
	namespace, ok := exactField(q.Query.Get("fieldSelector"), namespaceField)
	if !ok || len(validation.ValidateNamespaceName(namespace, false)) > 0 {
		return ""
	}
	return namespace
}

// single reports whether the API server reads a single key.
func (q Question) single() bool {
	if q.Query.Get("continue") != "" || q.Resource.Namespaced && q.narrowed() == "" {
		return false
	}
	name, ok := exactField(q.Query.Get("fieldSelector"), nameField)
	return ok && name != "" && len(content.IsPathSegmentName(name)) == 0
}

// indexed returns the node, if kube-apiserver takes the page from its index of pods by node.
func (q Question) indexed() (node string, ok bool) {
	limited := q.Query.Get("limit") != "" || strings.Contains(q.RawQuery, "limit=")
	if q.Resource.Resource != "pods" || !limited || q.Semantics != NotOlderThan && q.Semantics != MostRecent {
		return "", false
	}
	selector := q.Query.Get("fieldSelector")
	if node, ok = exactField(selector, cluster.NodeNameField); !ok {
		node, ok = exactField(selector, "spec.host") // its old name
	}
	return node, ok
}

// memory reports whether listproxy is to answer a question that is not odd from memory. consistent
// says whether it is to answer those for the newest state.
func (q Question) memory(consistent bool) bool {
	switch {
	case !q.Resource.Cached, !q.User.Lists(q.Resource, q.Namespace), q.Namespace != "" && !q.Resource.Namespaced:
		return false
	case q.effective() == MostRecent && (!consistent || q.Semantics != MostRecent), q.Odd, q.Representation == OddForm:
		return false
	}
	if q.Representation.metadata() && q.typeFields() {
		return false // a collection of metadata does not hold the fields of the type
	}
	if name, ok := exactField(q.Query.Get("fieldSelector"), nameField); ok && name == "" {
		return false // looked for in the whole range, and in vain
	}
	if q.Query.Has("labelSelector") && strings.TrimSpace(q.Query.Get("labelSelector")) == "" {
		return false // a selector that is written, and selects everything
	}
	// kube-apiserver reads the first page in the namespace, and the next from the whole resource.
	if _, ok := exactField(q.Query.Get("fieldSelector"), namespaceField); ok && q.scope() == AllNamespaces {
		return q.Query.Get("limit") == "" && q.Query.Get("continue") == ""
	}
	return true
}

// Memory reports whether listproxy is to answer a question that is not odd from memory, if it is to
// answer those for the newest state.
func (q Question) Memory() bool { return q.memory(true) }

// typeFields reports whether the type's own fields are selected by.
func (q Question) typeFields() bool {
	parsed, err := fields.ParseSelector(q.Query.Get("fieldSelector"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(parsed.Requirements(), func(r fields.Requirement) bool {
		return r.Field != nameField && r.Field != namespaceField
	})
}
