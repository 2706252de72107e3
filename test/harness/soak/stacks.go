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

// Stacks counts the goroutines of a process by what they are doing: the functions of their stacks,
// the innermost first.
type Stacks map[string]int

// TakeStacks reads the goroutines of a process at the URL of its /debug/pprof/goroutine.
func TakeStacks(ctx context.Context, url string) (Stacks, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?debug=1", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading goroutines: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading goroutines: %s", resp.Status)
	}
	return readStacks(resp.Body)
}

// readStacks reads a profile of goroutines as runtime/pprof writes it with debug=1: blocks that
// begin with "12 @ 0x…", and go on with a line "#   0x…     function+0x…    file:line" for each
// function.
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
		case len(fields) > 1 && fields[1] == "@":
			add()
			if _, err := fmt.Sscan(fields[0], &n); err != nil {
				return nil, fmt.Errorf("not a profile of goroutines: %w", err)
			}
		case len(fields) > 2 && fields[0] == "#":
			name, _, _ := strings.Cut(fields[2], "+0x")
			functions = append(functions, name)
		}
	}
	add()
	return stacks, lines.Err()
}

// More says of which goroutines there are more than before, the most first.
func (s Stacks) More(before Stacks) string {
	more := map[string]int{}
	for stack, n := range s {
		if n > before[stack] {
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
