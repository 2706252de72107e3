package differential

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// semantics says how an answer moves with time.
type semantics string

// The semantics of a list; legacyExact is an exact revision asked for by a limit alone.
const (
	anyRevision  semantics = "any"
	notOlderThan semantics = "not-older-than"
	exact        semantics = "exact"
	legacyExact  semantics = "legacy-exact"
	continued    semantics = "continue"
	mostRecent   semantics = "consistent"
	watching     semantics = "watch"
)

// moving is true if the answer depends on when it is given.
func (s semantics) moving() bool { return s == anyRevision || s == notOlderThan || s == mostRecent }

// representation is the form of an answer.
type representation string

// The representations; oddForm stands for all that are forwarded. JSON comes indented as well.
const (
	plainJSON        representation = "json"
	indentedJSON     representation = "indented"
	protobuf         representation = "protobuf"
	metadataJSON     representation = "metadata-json"
	metadataIndented representation = "metadata-indented"
	metadataProtobuf representation = "metadata-protobuf"
	oddForm          representation = "odd"
)

// metadata is true if objects come without spec and status.
func (r representation) metadata() bool {
	return r == metadataJSON || r == metadataIndented || r == metadataProtobuf
}

func (r representation) indented() bool { return r == indentedJSON || r == metadataIndented }

func (r representation) protobuf() bool { return r == protobuf || r == metadataProtobuf }

// selector is a kind of selectors.
type selector string

// The kinds of selectors. byMetadata is by metadata.name and metadata.namespace, byFields by those of the
// type (and maybe the former), byBoth by a label selector with a field selector of either kind.
const (
	byNothing  selector = "-"
	byLabels   selector = "labels"
	byMetadata selector = "metadata"
	byFields   selector = "fields"
	byBoth     selector = "both"
)

// scope is what a list is of.
type scope string

// The scopes.
const (
	oneNamespace  scope = "namespace"
	allNamespaces scope = "all"
	wholeCluster  scope = "cluster"
)

// page is which part of a list.
type page string

// The pages: firstPage has a limit (which anyRevision ignores), wholeList has none.
const (
	wholeList page = "whole"
	firstPage page = "first"
	nextPage  page = "next"
)

// moment is which state is asked for, on the first page, and which page.
type moment struct {
	Semantics semantics
	Page      page
}

// class is a kind of lists, as far as listproxy may go a way of its own with them.
type class struct {
	Representation representation
	Selector       selector
	Scope          scope
	moment
}

// What classes are made of.
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

// class returns the class of a list; it has none if it is odd.
func (q question) class() (class, bool) {
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

// focus are the resources that are compared in every class that they can be in.
var focus = []string{"pods", "configmaps", "nodes", "gadgets", "widgets"}

// card is a class and a resource, to be compared once in each round.
type card struct {
	class
	Resource cluster.Resource
	tries    int
}

const (
	// maxTries is how often a card is dealt in a round until it has been compared.
	maxTries = 24
	// soon is after how many others a card that came back is dealt again.
	soon = 50
)

// deck deals all cards in rounds, in an order of chance. Safe for concurrent use.
type deck struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cards []card
	left  []card
}

// newDeck returns the deck of the resources in focus, with the classes that they can be in.
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

// back takes a card back that could not be compared: a page that had no next one, for example.
func (d *deck) back(c card) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.tries++; c.tries < maxTries {
		d.left = slices.Insert(d.left, min(len(d.left), soon), c)
	}
}
