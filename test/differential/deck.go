package differential

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// focus are the resources that are compared in every class that they can be in.
var focus = []string{"pods", "configmaps", "nodes", "gadgets", "widgets"}

// card is a class and a resource, to be compared once in each round.
type card struct {
	Class
	Resource cluster.Resource
	tries    int
}

// maxTries is how often a card is dealt in a round until it has been compared.
const maxTries = 24

// soon is after how many others a card that came back is dealt again.
const soon = 50

// deck deals all cards in rounds, in an order of chance. Safe for concurrent use.
type deck struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cards []card
	left  []card
}

// newDeck returns the deck of the resources in focus.
func newDeck(rng *rand.Rand, resources []cluster.Resource, o Options) *deck {
	d := &deck{rng: rng}
	for _, r := range resources {
		if !slices.Contains(focus, r.Resource) || r.Reader || len(o.Resources) > 0 && !slices.Contains(o.Resources, r.Resource) {
			continue
		}
		for _, class := range classes() {
			fits := r.Namespaced == (class.Scope != WholeCluster) && (class.Selector != Fields || len(r.Fields) > 0)
			if fits && (o.Only == nil || o.Only(class)) {
				d.cards = append(d.cards, card{Class: class, Resource: r})
			}
		}
	}
	return d
}

// classes returns all classes.
func classes() []Class {
	var all []Class
	for _, representation := range representations {
		for _, selector := range selectorKinds {
			for _, scope := range scopes {
				for _, m := range moments {
					all = append(all, Class{representation, selector, scope, m.semantics, m.page})
				}
			}
		}
	}
	return all
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
