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

// labelSelectors covers the whole grammar, with the labels that package cluster sets.
var labelSelectors = []string{
	"tier=web", "tier==web", "tier!=web", "tier=", "tier", "!tier", "tier=nothing", "tier!=nothing",
	"tier in (web,db)", "tier in (web)", "tier in ()", "tier in (,db)", "tier notin (web,db)", "tier notin (web)",
	"turn>2", "turn<3", "turn>2,turn<4", "turn=1,tier=web", "turn!=3,tier", "!tier,turn", "tier in (web,db),turn notin (1,2),!none",
	"example.test/part-of", "example.test/part-of=x.y_z-1", "example.test/part-of!=x.y_z-1,tier=db", "!example.test/part-of",
	" tier = web ", "tier  in  ( web , db )", "tier=web , turn", "! tier", "tier notin(db)", "turn > 1", "tier=web,tier=db", "tier=web,tier=web",
	" ", "notin", "in=x", "in notin (in)", "in=in", "weight>0", "weight<10", "none",
}

// badSelectors are label selectors that kube-apiserver refuses.
var badSelectors = []string{
	"tier in (", "=x", "a b", "tier in web", "turn>x", "tier=a b", "tier===web", "-x=1", "tier,,turn", "!tier=web", "a/b/c", "tier in (web", ",", "x=" + "é",
}

// badFields are field selectors that kube-apiserver refuses for most types, or reads in an unusual way.
var badFields = []string{
	"spec.unknown=x", "bad", "metadata.labels=x", "metadata.name", "metadata.name>a", "spec.host=churn-a", "status.podIPs=10.1.0.1",
	"metadata.uid=x", "metadata.name=a\\", "=x", "spec.nodeName in (a)", "name=churn-a", "metadata.name=a,spec.unknown=x", "Metadata.name=a",
}

// metadataSelector returns a random field selector that every type accepts.
func (g *generator) metadataSelector(r cluster.Resource) string {
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

// nameTerm returns a term by name. Most operators are !=, since a selector that leaves many objects tests more.
func (g *generator) nameTerm(r cluster.Resource) string {
	names := append(r.Names(), "none", "")
	return nameField + pick(g, "=", "==", "!=", "!=", "!=") + pick(g, names...)
}

// namespaceTerm returns a term by namespace.
func (g *generator) namespaceTerm() string {
	return namespaceField + pick(g, "=", "==", "!=", "!=") + pick(g, append(slices.Clone(g.cluster.Namespaces), "none", "", "Not_A_Name")...)
}

// typeSelector returns a random field selector with fields of the type.
func (g *generator) typeSelector(r cluster.Resource) string {
	terms := []string{g.typeTerm(r)}
	for g.one(3) {
		terms = append(terms, g.typeTerm(r))
	}
	if g.one(5) {
		terms = append(terms, g.metadataSelector(r))
	}
	if g.one(10) {
		terms = append([]string{""}, terms...) // kube-apiserver skips empty terms
	}
	return strings.Join(terms, ",")
}

// typeTerm returns a term by a field of the type.
func (g *generator) typeTerm(r cluster.Resource) string {
	f := pick(g, r.Fields...)
	return f.Name + pick(g, "=", "==", "!=", "!=") + fields.EscapeValue(pick(g, f.Values...))
}

// shardSelectors choose by the hash of a field: a half, a half written as two ranges, and everything.
var shardSelectors = []string{
	"shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
	"shardRange(object.metadata.uid, '0x8000000000000000', '0xc000000000000000') || " +
		"shardRange(object.metadata.uid,'0xc000000000000000','0x10000000000000000')",
	"shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')",
	"shardRange(object.metadata.namespace, '0x0000000000000000', '0x10000000000000000')",
}

// shard asks for a shard now and then, where the API server knows shards (ShardedListAndWatch, alpha since 1.36). Pages of
// shards are not compared: kube-apiserver counts what remains after a page in its cache in another way than in etcd.
func (g *generator) shard(q *question) {
	if g.sharded && !q.Query.Has("limit") && g.one(6) {
		q.Query.Set("shardSelector", pick(g, shardSelectors...))
	}
}

// selectBy replaces the label and field selectors of a question by random ones of a kind.
func (g *generator) selectBy(q *question, kind selector) {
	q.Query.Del("labelSelector")
	q.Query.Del("fieldSelector")
	if kind == byLabels || kind == byBoth {
		q.Query.Set("labelSelector", pick(g, labelSelectors...))
	}
	if kind == byFields || kind == byBoth && g.one(2) {
		if len(q.Resource.Fields) > 0 {
			q.Query.Set("fieldSelector", g.typeSelector(q.Resource))
			return
		}
		kind = byMetadata
	}
	if kind == byMetadata || kind == byBoth {
		q.Query.Set("fieldSelector", g.metadataSelector(q.Resource))
	}
}
