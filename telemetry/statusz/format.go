package statusz

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// formatBytes writes a size for people, in units of 1024 as Kubernetes' quantities have them.
func formatBytes(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, units := float64(n)/1024, []string{"KiB", "MiB", "GiB", "TiB"}
	for value >= 1023.5 && len(units) > 1 { // so that it is not rounded to 1024
		value, units = value/1024, units[1:]
	}
	if value < 9.95 {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}

// formatCount writes a number with its thousands apart.
func formatCount[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	var parts []string
	for len(text) > 3 {
		parts = append([]string{text[len(text)-3:]}, parts...)
		text = text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, parts...), ",")
}

// formatSeconds writes a time for people: 0.4s, 12s, 2m30s, 5h12m, 3d4h.
func formatSeconds(s float64) string {
	d := time.Duration(max(0, s) * float64(time.Second))
	switch {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", min(59, int(d.Seconds()+0.5)))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// formatShare writes a share from 0 to 1 as a percentage. It writes 0% and 100% only if the share
// is exactly that.
func formatShare(share float64) string {
	switch percent := share * 100; {
	case share > 0 && percent < 0.1:
		return "< 0.1 %"
	case share < 1 && percent > 99.9:
		return "> 99.9 %"
	default:
		return fmt.Sprintf("%.1f %%", percent)
	}
}

// formatBound writes a size and its bound.
func formatBound(n, bound int64) string {
	if bound <= 0 {
		return formatBytes(n) + ", no bound"
	}
	return formatBytes(n) + " of " + formatBytes(bound)
}

// formatHistory says how much of its window a history covers. For a quiet resource it may be more
// than the window, since a state that did not change is not forgotten.
func formatHistory(c Collection) string {
	return formatSeconds(min(c.History, max(c.Window, 0))) + " of " + formatSeconds(c.Window)
}

// formatLimit writes a bound on memory.
func formatLimit(n int64) string {
	if n <= 0 {
		return "none"
	}
	return formatBytes(n)
}

// formatGCPercent writes a GOGC.
func formatGCPercent(percent int64) string {
	if percent < 0 {
		return "off"
	}
	return strconv.FormatInt(percent, 10)
}

// formatNewest says how lists of the newest state were answered, and what --consistent-lists would
// change.
func formatNewest(n Newest) string {
	text := formatCount(n.Proven) + " proven and answered from memory, " + formatCount(n.Forwarded) + " forwarded"
	if n.Estimated > 0 {
		text += "; with --consistent-lists " + formatCount(n.WouldAnswer) + " of " + formatCount(n.Estimated) + " more from memory"
	}
	return text
}

// formatKept says in words how a rule keeps a resource.
func formatKept(r Rule) string {
	if r.Cache == CacheNever {
		return "never"
	}
	words := []string{r.Cache, strings.Join(r.Representations, " "), "history " + formatSeconds(r.History)}
	if r.MaxBytes > 0 {
		words = append(words, "at most "+formatBytes(r.MaxBytes))
	}
	if r.Idle > 0 {
		words = append(words, "given up after "+formatSeconds(r.Idle))
	}
	if r.LimitAtZero == LimitHonoured {
		words = append(words, "limit honoured at resourceVersion=0")
	}
	if r.SameForEveryone {
		words = append(words, "same for everyone")
	}
	switch r.ConsistentLists {
	case "", ConsistentNever:
	case ConsistentFaster:
		words = append(words, "the newest state where faster")
	default:
		words = append(words, "the newest state")
	}
	if r.Watches {
		words = append(words, "watches")
	}
	if r.NewestAsAny > 0 {
		words = append(words, "any for "+formatCount(r.NewestAsAny)+" named")
	}
	return strings.Join(words, ", ")
}
