package differential

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// semantics is which state a request asks for.
type semantics string

// The semantics of lists, and watching for watches. legacyExact is a resourceVersion with a limit and without a match, which
// means Exact.
const (
	anyRevision  semantics = "any"
	notOlderThan semantics = "not-older-than"
	exact        semantics = "exact"
	legacyExact  semantics = "legacy-exact"
	continued    semantics = "continue"
	mostRecent   semantics = "consistent"
	watching     semantics = "watch"
)

// changesWithTime reports whether the answer depends on when it is given.
func (s semantics) changesWithTime() bool {
	return s == anyRevision || s == notOlderThan || s == mostRecent
}

// representation is the form of an answer.
type representation string

// The representations. oddForm stands for all that are always forwarded.
const (
	plainJSON        representation = "json"
	indentedJSON     representation = "indented"
	protobuf         representation = "protobuf"
	metadataJSON     representation = "metadata-json"
	metadataIndented representation = "metadata-indented"
	metadataProtobuf representation = "metadata-protobuf"
	oddForm          representation = "odd"
)

// metadata reports whether objects come without spec and status.
func (r representation) metadata() bool {
	return r == metadataJSON || r == metadataIndented || r == metadataProtobuf
}

// indented reports whether the answer is indented JSON.
func (r representation) indented() bool { return r == indentedJSON || r == metadataIndented }

// protobuf reports whether the answer is in protobuf.
func (r representation) protobuf() bool { return r == protobuf || r == metadataProtobuf }

// selector is a kind of selectors.
type selector string

// The kinds of selectors. byMetadata selects by metadata.name and metadata.namespace, byFields by fields of the type, and
// byBoth by labels and by fields of either kind.
const (
	byNothing  selector = "-"
	byLabels   selector = "labels"
	byMetadata selector = "metadata"
	byFields   selector = "fields"
	byBoth     selector = "both"
)

// scope is what a list covers.
type scope string

// The scopes.
const (
	oneNamespace  scope = "namespace"
	allNamespaces scope = "all"
	wholeCluster  scope = "cluster"
)

// page is a part of a list.
type page string

// The pages. firstPage has a limit, which anyRevision ignores.
const (
	wholeList page = "whole"
	firstPage page = "first"
	nextPage  page = "next"
)

// moment is a page and the state that it is of.
type moment struct {
	Semantics semantics // of the first page
	Page      page
}

// class is a kind of lists: two lists of different classes may take different paths through listproxy's code.
type class struct {
	Representation representation
	Selector       selector
	Scope          scope
	moment
}

// The values of the fields of classes.
var (
	representations = []representation{plainJSON, indentedJSON, protobuf, metadataJSON, metadataIndented, metadataProtobuf}
	selectors       = []selector{byNothing, byLabels, byMetadata, byFields, byBoth}
	scopes          = []scope{oneNamespace, allNamespaces, wholeCluster}
	moments         = []moment{
		{anyRevision, wholeList},
		{anyRevision, firstPage},
		{notOlderThan, wholeList},
		{notOlderThan, firstPage},
		{notOlderThan, nextPage},
		{exact, wholeList},
		{exact, firstPage},
		{exact, nextPage},
		{legacyExact, firstPage},
		{legacyExact, nextPage},
		{mostRecent, wholeList},
		{mostRecent, firstPage},
		{mostRecent, nextPage},
	}
)

// classes returns all classes.
func classes() []class {
	var all []class
	for _, representation := range representations {
		for _, selector := range selectors {
			for _, scope := range scopes {
				for _, m := range moments {
					all = append(all, class{representation, selector, scope, m})
				}
			}
		}
	}
	return all
}

// class returns the class of a list. It is not ok for an odd list.
func (q question) class() (_ class, ok bool) {
	c := class{q.Representation, q.selector(), q.scope(), moment{q.Semantics, wholeList}}
	switch {
	case q.Odd || q.Representation == oddForm:
		return c, false
	case q.Semantics == continued:
		c.moment = moment{q.Origin, nextPage}
		return c, q.Origin != ""
	case q.Query.Get("limit") != "":
		c.Page = firstPage
	}
	return c, true
}

func (q question) scope() scope {
	switch {
	case !q.Resource.Namespaced:
		return wholeCluster
	case q.Namespace != "":
		return oneNamespace
	}
	return allNamespaces
}

func (q question) selector() selector {
	labels, fields := q.Query.Get("labelSelector") != "", q.Query.Get("fieldSelector")
	switch {
	case labels && fields != "":
		return byBoth
	case labels:
		return byLabels
	case fields == "":
		return byNothing
	case q.typeFields():
		return byFields
	}
	return byMetadata
}

// focus are the resources that are compared in every class that is possible for them.
var focus = []string{"pods", "configmaps", "nodes", "gadgets", "widgets"}

// card is a class and a resource, to be compared once in each round.
type card struct {
	class
	Resource cluster.Resource
	tries    int // in this round
}

const (
	// maxTries is the number of times that a card is dealt in a round until it has been compared.
	maxTries = 24
	// returnDistance is the number of cards before a card that was returned.
	returnDistance = 50
)

// deck deals all cards in rounds, in random order. Safe for concurrent use.
type deck struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cards []card
	left  []card
}

// newDeck returns the deck of the resources in focus, with all classes that are possible for them.
func newDeck(rng *rand.Rand, resources []cluster.Resource) *deck {
	d := &deck{rng: rng}
	for _, r := range resources {
		if !slices.Contains(focus, r.Resource) || r.Reader {
			continue
		}
		for _, class := range classes() {
			if r.Namespaced == (class.Scope != wholeCluster) && (class.Selector != byFields || len(r.Fields) > 0) {
				d.cards = append(d.cards, card{class: class, Resource: r})
			}
		}
	}
	return d
}

// deal returns the next card.
func (d *deck) deal() card {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		d.left = slices.Clone(d.cards)
		d.rng.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	next := d.left[0]
	d.left = d.left[1:]
	return next
}

// putBack returns a card that could not be compared to the deck. For example, there was no next page.
func (d *deck) putBack(c card) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.tries++
	if c.tries < maxTries {
		d.left = slices.Insert(d.left, min(len(d.left), returnDistance), c)
	}
}
