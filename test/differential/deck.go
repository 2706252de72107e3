package differential

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// focus has the resources that are compared in every class that is possible for them.
var focus = []string{"pods", "configmaps", "nodes", "gadgets", "widgets"}

// card is a class and a resource of which a list is to be compared.
type card struct {
	class
	Resource cluster.Resource
	tries    int // how often the card was put back in this round
}

const (
	// maxTries is the number of times that one card is dealt in a round at most.
	maxTries = 24
	// returnDistance is the number of other cards that are dealt before a card that was put back is dealt again.
	returnDistance = 50
)

// deck deals its cards in rounds. In each round it deals every card once, in random order, and again the cards that were put
// back. Safe for concurrent use.
type deck struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cards []card // all cards
	left  []card // those still to be dealt in this round
}

// newDeck returns the deck of the resources in focus, with all classes that are possible for them.
func newDeck(rng *rand.Rand, resources []cluster.Resource) *deck {
	d := &deck{rng: rng}
	for _, r := range resources {
		if !slices.Contains(focus, r.Resource) || r.ReadOnly {
			continue
		}
		for _, class := range classes() {
			if class.isPossibleFor(r) {
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

// putBack puts back a card that could not be compared, for example because there was no next page.
func (d *deck) putBack(c card) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.tries++
	if c.tries < maxTries {
		d.left = slices.Insert(d.left, min(len(d.left), returnDistance), c)
	}
}
