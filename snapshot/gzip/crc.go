package gzip

// The CRC-32 of gzip (IEEE 802.3) calculates with polynomials over the field of 0 and 1. The lowest power is in the
// highest bit.
const (
	crcPolynomial = 0xedb88320
	crcOne        = 1 << 31 // the polynomial 1
)

// crcProduct returns a·b modulo crcPolynomial.
func crcProduct(a, b uint32) uint32 {
	product := uint32(0)
	for ; a != 0; a <<= 1 {
		if a&crcOne != 0 {
			product ^= b
		}
		// Multiply b by x: the next bit of a is of the next higher power.
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crcPolynomial
		}
	}
	return product
}

// crcShift returns x to the power of 8n. A checksum is multiplied by it if n bytes follow.
func crcShift(n int64) uint32 {
	power, shift := uint32(crcOne>>8), uint32(crcOne) // x⁸, 1
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			shift = crcProduct(power, shift)
		}
		power = crcProduct(power, power)
	}
	return shift
}

// crcJoin returns the checksum of two joined texts from the checksum of each. shift is the crcShift of the second
// text's length. (A CRC-32 is inverted before and after. Both cancel out here, as in zlib's crc32_combine.)
func crcJoin(first, second, shift uint32) uint32 { return crcProduct(shift, first) ^ second }
