package attacks

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// crowdTables are what TestCrowding prints for the documentation, in Markdown.
type crowdTables struct{ crowdings, watches, prices, chains []string }

func (c *crowdTables) print() {
	for _, table := range [][]string{
		append([]string{
			"Through listproxy / directly at kube-apiserver.", "",
			"| attack | the other caller's lists: p50 | p99 | from memory | failed: lists, new connections, watches" +
				" | CPU of kube-apiserver | of listproxy | authentications | reviews" +
				" | resident, of what is attacked | what came of the attack |",
			"|---|---|---|---|---|---|---|---|---|---|---|",
		}, c.crowdings...),
		append([]string{
			"| attack on watches | the other caller's lists: p50 | p99 | its watches, to the first event: p50 | p99" +
				" | its events, from the write on: p50 | p99 | from memory: lists, watches" +
				" | failed: lists, new connections, watches, events | CPU of kube-apiserver | of listproxy" +
				" | resident, of what is attacked | goroutines | descriptors | what came of the attack |",
			"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
		}, c.watches...),
		append([]string{
			"| made-up tokens at | lists | answers | authentications | CPU time of kube-apiserver |",
			"|---|---|---|---|---|",
		}, c.prices...),
		append([]string{
			"| CPU time of | certificates | a connection and a request without a certificate | with a chain" +
				" | each further request on it | to verify the chain once |",
			"|---|---|---|---|---|---|",
		}, c.chains...),
	} {
		_, _ = fmt.Fprintf(os.Stderr, "\n%s\n", strings.Join(table, "\n"))
	}
}

func (c *crowdTables) price(at string, lists int, answers string, authentications float64, cpu time.Duration) {
	n := fmt.Sprintf("%.0f", authentications)
	c.prices = append(c.prices, cellsOf(at, strconv.Itoa(lists), answers, n, milliseconds(cpu)))
}

func (c *crowdTables) chain(of string, length int, times ...time.Duration) {
	cells := []string{of, strconv.Itoa(length)}
	for _, d := range times {
		cells = append(cells, milliseconds(d))
	}
	c.chains = append(c.chains, cellsOf(cells...))
}

// crowding has what was measured through listproxy, and beside it directly.
func (c *crowdTables) crowding(what string, via, direct figures) {
	both := func(of func(figures) string) string { return of(via) + " / " + of(direct) }
	c.crowdings = append(c.crowdings, cellsOf(
		what,
		both(func(f figures) string { return milliseconds(percentile(f.work.lists, 0.5)) }),
		both(func(f figures) string { return milliseconds(percentile(f.work.lists, 0.99)) }),
		fmt.Sprintf("%.1f%%", 100*fromMemory(append(via.work.lists, via.work.connections...))),
		both(func(f figures) string {
			return strings.Join([]string{part(f.work.lists), part(f.work.connections), part(f.work.watches)}, ", ")
		}),
		both(func(f figures) string { return aSecond(f.upstream, f.took) }),
		aSecond(via.proxy, via.took),
		both(func(f figures) string { return fmt.Sprintf("%.0f", f.authentications) }),
		both(func(f figures) string { return fmt.Sprintf("%.0f", f.reviews) }),
		both(func(f figures) string { return fmt.Sprintf("%d → %d MiB", f.rss>>20, f.peak>>20) }),
		both(func(f figures) string { return f.attack.String() }),
	))
}

// watch has what was measured beside an attack on watches.
func (c *crowdTables) watch(what string, via, direct figures) {
	both := func(of func(figures) string) string { return of(via) + " / " + of(direct) }
	cells := []string{what}
	for _, of := range []func(figures) []crowdAnswer{
		func(f figures) []crowdAnswer { return f.work.lists },
		func(f figures) []crowdAnswer { return f.work.watches },
		func(f figures) []crowdAnswer { return f.work.events },
	} {
		for _, p := range []float64{0.5, 0.99} {
			cells = append(cells, both(func(f figures) string { return milliseconds(percentile(of(f), p)) }))
		}
	}
	c.watches = append(c.watches, cellsOf(append(cells,
		fmt.Sprintf("%.1f%%, %.1f%%", 100*fromMemory(via.work.lists), 100*fromMemory(via.work.watches)),
		both(func(f figures) string {
			w := f.work
			return strings.Join([]string{part(w.lists), part(w.connections), part(w.watches), part(w.events)}, ", ")
		}),
		both(func(f figures) string { return aSecond(f.upstream, f.took) }),
		aSecond(via.proxy, via.took),
		both(func(f figures) string { return fmt.Sprintf("%d → %d MiB", f.rss>>20, f.peak>>20) }),
		both(func(f figures) string { return fmt.Sprintf("%.0f → %.0f", f.held.goroutines, f.most.goroutines) }),
		both(func(f figures) string { return fmt.Sprintf("%.0f → %.0f", f.held.descriptors, f.most.descriptors) }),
		both(func(f figures) string { return f.attack.String() }),
	)...))
}

func cellsOf(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |" }

// String is for the table.
func (p pressed) String() string {
	if p.says != "" {
		return p.says
	}
	if p.sent == 0 {
		return "none"
	}
	return fmt.Sprintf("%d sent: %s", p.sent, counted(p.counts))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// part is how many of them failed.
func part(answers []crowdAnswer) string {
	return fmt.Sprintf("%d of %d", failed(answers), len(answers))
}

// aSecond is how much CPU was used in each second.
func aSecond(cpu, took time.Duration) string {
	return fmt.Sprintf("%.0f ms/s", 1000*cpu.Seconds()/took.Seconds())
}
