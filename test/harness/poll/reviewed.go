package poll

import (
	"context"
	"strings"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// ReviewFailed is the Cache-Status of a list that listproxy forwarded because kube-apiserver could
// not be asked what its caller may: the review had no answer in time, or its connection was given
// up. That is of the moment, and not remembered.
const ReviewFailed = "listproxy; fwd=bypass; detail=" + string(reason.ReviewFailed)

// UnknownCaller is the Cache-Status of a list that listproxy forwarded because kube-apiserver had
// not yet accepted its caller's token there. The answer to that list tells listproxy.
const UnknownCaller = "listproxy; fwd=bypass; detail=" + string(reason.UnknownCaller)

// Reviewed puts a question to listproxy, and puts it again while the answer is a [ReviewFailed] or
// an [UnknownCaller], which say nothing of what is in memory. put returns the Cache-Status, or a
// text that has it. Every other answer is the last one, and so is the first one after patience or
// at the end of ctx, whatever it says.
func Reviewed(ctx context.Context, patience time.Duration, put func() (said string)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		said := put()
		if !strings.Contains(said, ReviewFailed) && !strings.Contains(said, UnknownCaller) || !Pause(ctx, every) {
			return
		}
	}
}
