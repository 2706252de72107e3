package statusz

const (
	// barWidth is the width of a history's bar, in units of its own.
	barWidth = 1000
	// barLeast is the least width of a span or gap, so that it can be seen.
	barLeast = 6
)

// barPart is a span or a gap of a history, as it is drawn.
type barPart struct {
	X, Width int
	Gap      bool
	// From and To are its revisions, both included. A gap has those that are not known.
	From, To uint64
}

// layBar lays out a history: all of the bar is the window, its right end is the newest revision,
// and what is known begins as far to the left as the history reaches. Within it, widths go by
// revisions. There are as many parts as fit with the least width; the oldest are left out.
func layBar(c Collection) []barPart {
	if len(c.Spans) == 0 {
		return nil
	}
	reach := barWidth
	if c.Window > 0 && c.History < c.Window {
		reach = max(barLeast, int(barWidth*c.History/c.Window))
	}
	spans := c.Spans
	if fit := (reach/barLeast + 1) / 2; len(spans) > fit {
		spans = spans[len(spans)-max(1, fit):]
	}
	var parts []barPart
	for i, s := range spans {
		if i > 0 {
			parts = append(parts, barPart{Gap: true, From: spans[i-1].To + 1, To: s.From - 1})
		}
		parts = append(parts, barPart{From: s.From, To: s.To})
	}
	free := reach - barLeast*len(parts)
	all := float64(spans[len(spans)-1].To-spans[0].From) + 1
	// Rounding each end, and not each width, lets no space be lost.
	end, share := 0, float64(0)
	for i := range parts {
		p := &parts[i]
		share += float64(p.To-p.From+1) / all
		next := barLeast*(i+1) + int(float64(max(0, free))*min(1, share))
		if i == len(parts)-1 {
			next = reach // whatever sums of fractions come to
		}
		p.X, p.Width = barWidth-reach+end, next-end
		end = next
	}
	return parts
}
