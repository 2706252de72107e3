package differential

import (
	"fmt"
	"slices"
	"strings"
)

// CoverageAfter is how many comparisons are enough for every class to be among them, on a cluster
// with all resources: what a machine of two cores makes in about a minute and a half.
const CoverageAfter = 7500

// Missing returns the classes of which not one list has been compared.
func (r *Report) Missing() []Class {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(classes(), func(c Class) bool { return r.classes[c].all > 0 })
}

// has reports whether a list of a class has been compared.
func (r *Report) has(c Class) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.classes[c].all > 0
}

// table shows how often each class was compared, and how much of what is to come from memory did:
// representation, selector and scope by semantics and page.
func table(counts map[Class]tally) string {
	if len(counts) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("lists compared, with the share from memory where they are to be answered so\n")
	columns := make([]string, len(moments))
	for i, m := range moments {
		columns[i] = fmt.Sprintf("%s/%s", short[m.semantics], m.page)
	}
	line := func(head [3]string, cells []string) {
		fmt.Fprintf(&b, "  %-17s %-8s %-9s", head[0], head[1], head[2])
		for _, cell := range cells {
			fmt.Fprintf(&b, " %12s", cell)
		}
		b.WriteByte('\n')
	}
	line([3]string{"representation", "selector", "scope"}, columns)
	asked := map[Representation]bool{}
	for class := range counts {
		asked[class.Representation] = true
	}
	for _, representation := range representations {
		if !asked[representation] {
			continue
		}
		for _, selector := range selectorKinds {
			for _, scope := range scopes {
				cells := make([]string, len(moments))
				for i, m := range moments {
					t := counts[Class{representation, selector, scope, m.semantics, m.page}]
					cells[i] = fmt.Sprint(t.all)
					if t.answerable > 0 {
						cells[i] += fmt.Sprintf(" %3.0f%%", 100*t.share())
					}
				}
				line([3]string{string(representation), string(selector), string(scope)}, cells)
			}
		}
	}
	return b.String()
}

var short = map[Semantics]string{Any: "any", NotOlderThan: "nolder", Exact: "exact", Legacy: "legacy", MostRecent: "recent"}
