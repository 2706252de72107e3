package soak

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Stacks is a profile of a process, by the functions of stacks, the innermost first: how many
// goroutines are there, or how many bytes of the heap, of those that were sampled, were made there.
type Stacks map[string]int

// TakeStacks reads a profile, "goroutine" or "heap", of the process whose /debug/pprof is at the
// URL. The heap is collected first.
func TakeStacks(ctx context.Context, url, profile string) (Stacks, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/debug/pprof/"+profile+"?gc=1&debug=1", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading a profile: %s", resp.Status)
	}
	return readStacks(resp.Body)
}

// collections is how often [Collect] has garbage collected: a sync.Pool lets go of what it has with
// the second, and what a finalizer or a cleanup had kept goes with those after it. Each also makes
// stacks smaller that have grown.
const collections = 5

// Collect has the process collect all garbage, so that the next [Sample] has a floor.
func Collect(ctx context.Context, url string) error {
	for range collections {
		if _, err := TakeStacks(ctx, url, "heap"); err != nil {
			return err
		}
	}
	return nil
}

// readStacks reads a profile as runtime/pprof writes it with debug=1: blocks that begin with
// "12 @ 0x…", of the heap with "objects: bytes [objects: bytes] @ 0x…" (in use, and ever), and go on
// with a line "#   0x…     function+0x…    file:line" for each function.
func readStacks(in io.Reader) (Stacks, error) {
	stacks := Stacks{}
	n, functions := 0, []string(nil)
	add := func() {
		if n > 0 {
			stacks[strings.Join(functions, " < ")] += n
		}
		n, functions = 0, nil
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 1 && fields[1] == "@", len(fields) > 4 && fields[4] == "@":
			add()
			count := fields[0]
			if fields[1] != "@" {
				count = fields[1]
			}
			if _, err := fmt.Sscan(count, &n); err != nil {
				return nil, fmt.Errorf("not a profile: %w", err)
			}
		case len(fields) > 2 && fields[0] == "#" && strings.HasPrefix(fields[1], "0x"):
			name, _, _ := strings.Cut(fields[2], "+0x")
			functions = append(functions, name)
		}
	}
	add()
	return stacks, lines.Err()
}

// More says of which stacks there is more than before by at least so much, the most first.
func (s Stacks) More(before Stacks, least int) string {
	more := map[string]int{}
	for stack, n := range s {
		if n >= before[stack]+least {
			more[stack] = n - before[stack]
		}
	}
	var b strings.Builder
	for _, stack := range slices.SortedFunc(maps.Keys(more), func(a, b string) int {
		return cmp.Or(cmp.Compare(more[b], more[a]), cmp.Compare(a, b))
	}) {
		_, _ = fmt.Fprintf(&b, "\n%6d more: %s", more[stack], stack)
	}
	return b.String()
}
