package wire

import "strconv"

// The API server has two ways to write JSON. Built-in types keep the
// order of their Go structs, and their items carry no kind and apiVersion: structShape. Custom
// resources have all keys sorted, always a "continue", and items that keep both: sortedShape.
type (
	structShape struct{}
	sortedShape struct{}
)

// shapes implements Encoding.
func (jsonEncoding) shapes() []shape { return []shape{structShape{}, sortedShape{}} }

func (structShape) appendHead(dst []byte, f *Frame, meta ListMeta, n, _ int) []byte {
	dst = append(dst, `{"kind":`...)
	dst = strconv.AppendQuote(dst, f.kind)
	dst = append(dst, `,"apiVersion":`...)
	dst = strconv.AppendQuote(dst, f.APIVersion)
	dst = append(dst, `,"metadata":{"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	dst = append(dst, '"')
	if meta.Continue != "" {
		dst = append(dst, `,"continue":`...)
		dst = strconv.AppendQuote(dst, meta.Continue)
	}
	if meta.HasRemaining {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	if meta.Shards != "" {
		dst = append(dst, `,"shardInfo":{"selector":`...)
		dst = strconv.AppendQuote(dst, meta.Shards)
		dst = append(dst, '}')
	}
	return appendItemsHead(append(dst, '}'), f, n)
}

func (structShape) appendItemHead(dst []byte, i, _ int) []byte { return appendComma(dst, i) }

func (structShape) appendTail(dst []byte, _ *Frame, _ ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	return append(dst, "}\n"...)
}

func (sortedShape) appendHead(dst []byte, f *Frame, _ ListMeta, n, _ int) []byte {
	dst = append(dst, `{"apiVersion":`...)
	dst = strconv.AppendQuote(dst, f.APIVersion)
	return appendItemsHead(dst, f, n)
}

func (sortedShape) appendItemHead(dst []byte, i, _ int) []byte { return appendComma(dst, i) }

func (sortedShape) appendTail(dst []byte, f *Frame, meta ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	dst = append(dst, `,"kind":`...)
	dst = strconv.AppendQuote(dst, f.kind)
	dst = append(dst, `,"metadata":{"continue":`...)
	dst = strconv.AppendQuote(dst, meta.Continue)
	if meta.HasRemaining {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	dst = append(dst, `,"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	return append(dst, "\"}}\n"...)
}

func appendItemsHead(dst []byte, f *Frame, n int) []byte {
	dst = append(dst, `,"items":`...)
	if n == 0 {
		return append(dst, f.EmptyItems...)
	}
	return append(dst, '[')
}

func appendComma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}
