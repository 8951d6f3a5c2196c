"""Values of Debezium-style events beside PostgreSQL's own text of them."""
import base64, hashlib, json, re

DATE = r"(\d{4,})-(\d\d)-(\d\d)"
TIME = r"(\d\d):(\d\d):(\d\d)(\.\d+)?"
DAY = 86400 * 10**6


def same_value(got, wanted):
    """Is this JSON value (numbers as they are written) the text that the server prints? Dates are days since 1970, times
    microseconds, zoned ones as ISO 8601 writes them, bytes base64."""
    if got is None or wanted is None:
        return got is wanted
    if any(form == plain(wanted) for form in forms(got)):
        return True
    long = re.fullmatch(r"<text len=(\d+) md5=([0-9a-f]{32})>", str(wanted))
    if long:
        return any(len(f) == int(long[1]) and hashlib.md5(f.encode()).hexdigest() == long[2] for f in forms(got))
    return isinstance(wanted, str) and re.fullmatch(r"-?\d+", str(got)) is not None and int(got) == number(wanted)


def forms(got):
    """The texts that it may stand for."""
    found = [plain(got)]
    if isinstance(got, str):
        zoned = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d+)?)Z", got)
        if zoned:
            found.append("%s %s+00" % zoned.groups())
        try:
            found.append("\\x" + base64.b64decode(got, validate=True).hex())
        except ValueError:
            pass
    return found


def plain(value):
    """A JSON value as the text that a case gives."""
    if isinstance(value, bool):
        return "t" if value else "f"
    return value if isinstance(value, str) else json.dumps(value)


def number(text):
    """Days of a date, microseconds of a time or timestamp; none for any other text."""
    bc = text.endswith(" BC")
    text = text.removesuffix(" BC").removesuffix("+00")
    date, time = re.fullmatch(DATE, text), re.fullmatch(TIME, text)
    both = re.fullmatch(DATE + " " + TIME, text)
    if date:
        return days(date.groups(), bc)
    if time:
        return micros(time.groups())
    return days(both.groups()[:3], bc) * DAY + micros(both.groups()[3:]) if both else None


def days(date, bc):
    """Since 1970, in the Gregorian calendar of all times. The year begins in March, so that a leap day is its last."""
    year, month, day = (int(part) for part in date)
    year = (1 - year if bc else year) - (month <= 2)
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def micros(time):
    hours, minutes, seconds = (int(part) for part in time[:3])
    return (hours * 3600 + minutes * 60 + seconds) * 10**6 + round(float(time[3] or 0) * 10**6)
