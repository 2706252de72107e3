package freshness

import "time"

// Inquiry is a question to the upstream for its current revision, or for its newest state.
type Inquiry struct {
	// Number counts a collection's inquiries. It shows which requests came before an inquiry,
	// independently of clocks.
	Number uint64
	// Asked is when it was sent.
	Asked time.Time
}
