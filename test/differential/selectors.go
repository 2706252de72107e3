package differential

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// The fields that every type has.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// labelSelectors cover the whole grammar. They select by the labels that package cluster gives objects.
var labelSelectors = []string{
	// Operators, and sets of values.
	"tier=web", "tier==web", "tier!=web", "tier=", "tier", "!tier", "tier=nothing", "tier!=nothing",
	"tier in (web,db)", "tier in (web)", "tier in ()", "tier in (,db)", "tier notin (web,db)", "tier notin (web)",
	// Numbers, and several terms.
	"turn>2", "turn<3", "turn>2,turn<4", "weight>0", "weight<10", "turn=1,tier=web", "turn!=3,tier", "!tier,turn",
	"tier in (web,db),turn notin (1,2),!none", "tier=web,tier=db", "tier=web,tier=web", "none",
	// Keys with a prefix.
	"example.test/part-of", "example.test/part-of=x.y_z-1", "example.test/part-of!=x.y_z-1,tier=db", "!example.test/part-of",
	// Spaces.
	" tier = web ", "tier  in  ( web , db )", "tier=web , turn", "! tier", "tier notin(db)", "turn > 1", " ",
	// Words of the grammar as keys and values.
	"notin", "in=x", "in notin (in)", "in=in",
}

// refusedLabelSelectors are those that kube-apiserver refuses.
var refusedLabelSelectors = []string{
	// Not of the grammar.
	"tier in (", "tier in (web", "tier in web", "=x", "a b", "tier=a b", "tier===web", "tier,,turn", "!tier=web", ",",
	// Keys and values that are not allowed.
	"turn>x", "-x=1", "a/b/c", "x=é",
}

// unusualFieldSelectors are those that kube-apiserver refuses for most types, or reads in an unusual way.
var unusualFieldSelectors = []string{
	// Fields that most types do not have.
	"spec.unknown=x", "metadata.labels=x", "metadata.uid=x", "status.podIPs=10.1.0.1", "Metadata.name=a", "metadata.name=a,spec.unknown=x",
	// Old names of fields, which some types still have.
	"spec.host=churn-a", "name=churn-a",
	// Not of the grammar.
	"bad", "metadata.name", "metadata.name>a", "metadata.name=a\\", "=x", "spec.nodeName in (a)",
}

// metadataSelector returns a random field selector that every type accepts: by name, by namespace, or by both.
func (g *generator) metadataSelector(r cluster.Resource) string {
	terms := []string{g.nameTerm(r)}
	n := g.rng.IntN(4)
	switch {
	case !r.Namespaced: // only the name
	case n == 0:
		terms = []string{g.namespaceTerm()}
	case n == 1:
		terms = append(terms, g.namespaceTerm())
	}
	if g.oneIn(6) {
		terms = append(terms, g.nameTerm(r))
	}
	return strings.Join(terms, ",")
}

// nameTerm returns a random term of a field selector, by name. Most terms have the operator !=, which leaves more objects to
// compare than =.
func (g *generator) nameTerm(r cluster.Resource) string {
	names := append(slices.Clone(r.Names()), "none", "")
	return nameField + pick(g, "=", "==", "!=", "!=", "!=") + pick(g, names...)
}

// namespaceTerm returns a term by namespace.
func (g *generator) namespaceTerm() string {
	names := append(slices.Clone(g.cluster.Namespaces), "none", "", "Not_A_Name")
	return namespaceField + pick(g, "=", "==", "!=", "!=") + pick(g, names...)
}

// typeSelector returns a random field selector with fields of the type.
func (g *generator) typeSelector(r cluster.Resource) string {
	terms := []string{g.typeTerm(r)}
	for g.oneIn(3) {
		terms = append(terms, g.typeTerm(r))
	}
	if g.oneIn(5) {
		terms = append(terms, g.metadataSelector(r))
	}
	if g.oneIn(10) {
		terms = append([]string{""}, terms...) // kube-apiserver skips empty terms
	}
	return strings.Join(terms, ",")
}

// typeTerm returns a term by a field of the type.
func (g *generator) typeTerm(r cluster.Resource) string {
	f := pick(g, r.Fields...)
	return f.Name + pick(g, "=", "==", "!=", "!=") + fields.EscapeValue(pick(g, f.Values...))
}

// shardSelectors select objects by the hash of a field. The first selects half of the objects, by their UID. The second selects
// the other half, as two ranges. The third selects the objects in half of the namespaces, and the last those in all namespaces.
var shardSelectors = []string{
	"shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
	"shardRange(object.metadata.uid, '0x8000000000000000', '0xc000000000000000') || " +
		"shardRange(object.metadata.uid,'0xc000000000000000','0x10000000000000000')",
	"shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.namespace, '0x0000000000000000', '0x10000000000000000')",
}

// setShard makes a question ask for a shard now and then, if the API server has shards (ShardedListAndWatch, alpha since 1.36).
// Pages of shards are not compared: kube-apiserver counts the objects behind a page in one way in its cache, and in another way
// in etcd.
func (g *generator) setShard(q *question) {
	if g.hasShards && !q.Query.Has("limit") && g.oneIn(6) {
		q.Query.Set("shardSelector", pick(g, shardSelectors...))
	}
}

// setSelectors replaces the label and field selectors of a question by random ones of a kind.
func (g *generator) setSelectors(q *question, kind selector) {
	q.Query.Del("labelSelector")
	q.Query.Del("fieldSelector")
	if kind == byLabels || kind == byBoth {
		q.Query.Set("labelSelector", pick(g, labelSelectors...))
	}
	wantsTypeFields := kind == byFields || kind == byBoth && g.oneIn(2)
	switch {
	case wantsTypeFields && len(q.Resource.Fields) > 0:
		q.Query.Set("fieldSelector", g.typeSelector(q.Resource))
	case kind != byNothing && kind != byLabels:
		q.Query.Set("fieldSelector", g.metadataSelector(q.Resource))
	}
}
